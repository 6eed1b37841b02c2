package upgrade

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

const (
	// early is how long before its intent an update may have been made and still be
	// the intent's: clocks differ (semantics 7).
	early = 5 * time.Minute
	// mostUpdates bounds how many updates are described in one look. Only ids are
	// listed, in no stated order, so each costs a call.
	mostUpdates = 100
	// mostUnknown is how many looks in a row may find no such update, right after it
	// was accepted, before that is an error.
	mostUnknown = 10
)

// updates looks at the updates of a cluster, or of one of its add-ons.
type updates struct {
	d Deps
	// addon is the add-on's name, "" for the cluster itself: EKS wants it with every
	// request about an add-on's update.
	addon string
	// ended remembers updates that have ended, which do not change any more.
	ended map[string]bool
}

func newUpdates(d Deps, addon string) *updates {
	return &updates{d: d, addon: addon, ended: map[string]bool{}}
}

// object names what is updated, for people.
func (u *updates) object() string {
	if u.addon == "" {
		return "cluster " + u.d.Cluster
	}
	return fmt.Sprintf("add-on %s of cluster %s", u.addon, u.d.Cluster)
}

// get describes one update; nil when EKS does not know it.
func (u *updates) get(ctx context.Context, id string) (*ekstypes.Update, error) {
	return u.lookup(ctx, id, u.addon)
}

// lookup describes an update of the cluster itself or of the add-on named.
func (u *updates) lookup(ctx context.Context, id, addon string) (*ekstypes.Update, error) {
	in := &eks.DescribeUpdateInput{Name: &u.d.Cluster, UpdateId: &id}
	if addon != "" {
		in.AddonName = &addon
	}
	out, err := u.d.EKS.DescribeUpdate(ctx, in)
	if err != nil {
		if aws.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("look at update %s of %s: %w", id, u.object(), err)
	}
	return out.Update, nil
}

// find goes through the updates until one fits; nil when none does. The newest of
// those that fit is taken, and one that is still running at once.
func (u *updates) find(ctx context.Context, fits func(*ekstypes.Update) bool, skipEnded bool) (*ekstypes.Update, error) {
	in := &eks.ListUpdatesInput{Name: &u.d.Cluster}
	if u.addon != "" {
		in.AddonName = &u.addon
	}
	var best *ekstypes.Update
	left := mostUpdates
	for {
		page, err := u.d.EKS.ListUpdates(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("list the updates of %s: %w", u.object(), err)
		}
		for _, id := range page.UpdateIds {
			if left == 0 || (skipEnded && u.ended[id]) {
				continue
			}
			left--
			one, err := u.get(ctx, id)
			if err != nil {
				return nil, err
			}
			if one == nil {
				continue
			}
			u.ended[id] = terminal(one.Status)
			if !fits(one) {
				continue
			}
			if !terminal(one.Status) {
				return one, nil
			}
			if best == nil || awssdk.ToTime(one.CreatedAt).After(awssdk.ToTime(best.CreatedAt)) {
				best = one
			}
		}
		if in.NextToken = page.NextToken; awssdk.ToString(page.NextToken) == "" {
			return best, nil
		}
	}
}

// ofAttempt finds the update that an attempt without outcome started: of the right
// type, to the right version, made no earlier than five minutes before the intent,
// and not that of an attempt before, which may have failed a moment ago.
func (u *updates) ofAttempt(ctx context.Context, a *attempt, typ ekstypes.UpdateType) (*ekstypes.Update, error) {
	since := a.at.Add(-early)
	return u.find(ctx, func(x *ekstypes.Update) bool {
		return leadsTo(x, typ, a.To) && !awssdk.ToTime(x.CreatedAt).Before(since) && !slices.Contains(a.former, awssdk.ToString(x.Id))
	}, false)
}

// busyID takes the id of the running update out of a ResourceInUseException:
// "Cannot VersionUpdate because cluster X currently has update ID in progress".
var busyID = regexp.MustCompile(`update ([0-9A-Za-z-]{8,64}) in progress`)

// running finds the update that keeps the object busy: the one that the message
// names, or any that is listed and has not ended. nil when none is to be seen, as
// while AWS patches the cluster (aws/containers-roadmap#1500).
func (u *updates) running(ctx context.Context, message string) (*ekstypes.Update, error) {
	if m := busyID.FindStringSubmatch(message); m != nil {
		one, err := u.get(ctx, m[1])
		if err == nil && one == nil && u.addon != "" {
			// The cluster itself may be what is busy.
			one, err = u.lookup(ctx, m[1], "")
		}
		if err != nil {
			return nil, err
		}
		if one != nil && !terminal(one.Status) {
			return one, nil
		}
	}
	return u.find(ctx, func(x *ekstypes.Update) bool { return !terminal(x.Status) }, true)
}

// terminal tells whether an update has ended. Statuses that are not known have not.
func terminal(s ekstypes.UpdateStatus) bool {
	return s == ekstypes.UpdateStatusSuccessful || s == ekstypes.UpdateStatusFailed || s == ekstypes.UpdateStatusCancelled
}

// leadsTo tells whether the update is of the type and goes to the version.
func leadsTo(u *ekstypes.Update, typ ekstypes.UpdateType, version string) bool {
	return u.Type == typ && target(u) == version
}

// target is the version that an update of a cluster or an add-on goes to.
func target(u *ekstypes.Update) string {
	for _, p := range u.Params {
		if p.Type == ekstypes.UpdateParamTypeVersion || p.Type == ekstypes.UpdateParamTypeAddonVersion {
			return awssdk.ToString(p.Value)
		}
	}
	return ""
}

// describe names an update for people: "f4b35952-… (VersionUpdate to 1.32)".
func describe(u *ekstypes.Update) string {
	what := string(u.Type)
	if v := target(u); v != "" {
		what += " to " + v
	}
	return fmt.Sprintf("%s (%s)", awssdk.ToString(u.Id), what)
}

// failure says all that EKS said about an update that did not succeed, and what
// helps where that is known.
func failure(object string, u *ekstypes.Update) string {
	var parts, cures []string
	for _, e := range u.Errors {
		text := string(e.ErrorCode) + ": " + awssdk.ToString(e.ErrorMessage)
		if len(e.ResourceIds) > 0 {
			text += " (" + strings.Join(e.ResourceIds, ", ") + ")"
		}
		parts = append(parts, text)
		if c := curesByCode[e.ErrorCode]; c != "" && !slices.Contains(cures, c) {
			cures = append(cures, c)
		}
	}
	if len(parts) == 0 {
		parts = []string{"EKS gives no reason"}
	}
	text := fmt.Sprintf("update %s of %s ended %s: %s", describe(u), object, u.Status, strings.Join(parts, "; "))
	if len(cures) == 0 {
		cures = []string{"mend the cause, then run the same command again"}
	}
	return state.Clean(text + "; " + strings.Join(cures, "; "))
}

// curesByCode is what helps for the error codes of updates (EKS API, type ErrorDetail).
var curesByCode = map[ekstypes.ErrorCode]string{
	ekstypes.ErrorCodeIpNotAvailable:            "free at least 5 addresses in each of two subnets in different zones, or give the cluster other subnets of the same zones (`aws eks update-cluster-config`)",
	ekstypes.ErrorCodeInsufficientFreeAddresses: "free at least 5 addresses in each of two subnets in different zones, or give the cluster other subnets of the same zones (`aws eks update-cluster-config`)",
	ekstypes.ErrorCodeSubnetNotFound:            "give the cluster subnets that exist (`aws eks update-cluster-config`)",
	ekstypes.ErrorCodeSecurityGroupNotFound:     "put the security group back that the cluster was made with",
	ekstypes.ErrorCodeEniLimitReached:           "raise the quota of network interfaces of the account",
	ekstypes.ErrorCodeAccessDenied:              "give the cluster's IAM role its permissions back",
	ekstypes.ErrorCodeConfigurationConflict:     "compare the add-on's configuration with what runs in the cluster",
}

// elapsed says how long an update runs and how long such a one takes: "30s of 8-12m".
func elapsed(since time.Duration, e state.Expect) string {
	text := since.Round(time.Second).String()
	if since < 0 {
		text = "0s"
	}
	if e.Max <= 0 {
		return text
	}
	if since > e.Max.D() {
		return text + ", longer than " + span(e)
	}
	return text + " of " + span(e)
}

// span writes an expectation as people do: 8-12m, 2m, 20-30s.
func span(e state.Expect) string {
	unit, suffix := time.Second, "s"
	if e.Max.D() >= time.Minute && e.Min.D()%time.Minute == 0 && e.Max.D()%time.Minute == 0 {
		unit, suffix = time.Minute, "m"
	}
	lo, hi := int(e.Min.D()/unit), int(e.Max.D()/unit)
	if lo == hi || lo == 0 {
		return fmt.Sprintf("%d%s", hi, suffix)
	}
	return fmt.Sprintf("%d-%d%s", lo, hi, suffix)
}

// watch follows an update to its end and returns it as it ended; nil when EKS does
// not know it. While it runs, look is asked what else to say, and may end the wait.
func (u *updates) watch(ctx context.Context, rec state.Recorder, id string, e state.Expect,
	look func(ctx context.Context, running time.Duration) (string, error),
) (*ekstypes.Update, error) {
	began := u.d.Clock.Now()
	unknown := 0
	for {
		one, err := u.get(ctx, id)
		if err != nil {
			return nil, err
		}
		switch {
		case one == nil:
			if unknown++; unknown > mostUnknown {
				return nil, nil
			}
			rec.Waiting(fmt.Sprintf("EKS does not show update %s yet", id))
		case terminal(one.Status):
			return one, nil
		default:
			unknown = 0
			if one.CreatedAt != nil && one.CreatedAt.Before(began) {
				began = *one.CreatedAt
			}
			running := u.d.Clock.Since(began)
			text := elapsed(running, e) + ", " + string(one.Status)
			if look != nil {
				more, err := look(ctx, running)
				if err != nil {
					return nil, err
				}
				text += more
			}
			rec.Waiting(state.Clean(text))
		}
		if err := u.d.pause(ctx); err != nil {
			return nil, fmt.Errorf("wait for update %s of %s: %w", id, u.object(), err)
		}
	}
}

// noteBusy keeps in the journal whose update was waited for.
func (u *updates) noteBusy(rec state.Recorder, one *ekstypes.Update) error {
	if one == nil {
		return nil
	}
	text := fmt.Sprintf("update %s keeps %s busy and is not this run's; it is waited for", describe(one), u.object())
	if err := rec.Record(state.Record{Kind: state.RecordNote, Text: state.Clean(text)}); err != nil {
		return fmt.Errorf("write down what keeps %s busy: %w", u.object(), err)
	}
	return nil
}

// waitOut waits for what keeps the object busy: for the update one to end if it is
// known, else for one poll, since only another try tells. since is when it began to
// be in the way; after the deps' BusyPatience the run stops, resumable, for the
// object is somebody else's for now.
func (u *updates) waitOut(ctx context.Context, rec state.Recorder, since time.Time, one *ekstypes.Update, why string) error {
	known := one != nil
	for {
		if known {
			why = fmt.Sprintf("update %s is %s", describe(one), one.Status)
		}
		busy := u.d.Clock.Since(since)
		if busy >= u.d.BusyPatience {
			return &state.Stop{Code: state.ExitResumable,
				Why:  state.Clean(fmt.Sprintf("%s has been busy for %s: %s", u.object(), busy.Round(time.Second), why)),
				Cure: "run the same command again when that has ended"}
		}
		rec.Waiting(state.Clean(fmt.Sprintf("%s for %s to be free: %s", elapsed(busy, state.Expect{}), u.object(), why)))
		if err := u.d.pause(ctx); err != nil {
			return fmt.Errorf("wait for %s to be free: %w", u.object(), err)
		}
		if !known {
			return nil
		}
		addon := u.addon
		if one.Type != ekstypes.UpdateTypeAddonUpdate {
			addon = ""
		}
		next, err := u.lookup(ctx, awssdk.ToString(one.Id), addon)
		if err != nil {
			return err
		}
		if next == nil || terminal(next.Status) {
			return nil
		}
		one = next
	}
}
