package upgrade

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// Addon raises one managed add-on to spec.To. What users have changed in it stays
// (ResolveConflicts PRESERVE); its configuration values and pod identity
// associations are never sent, so they stay as they are: an empty list of
// associations would delete them.
type Addon struct {
	spec state.StepSpec
	d    Deps
	upd  *updates
}

// NewAddon makes the step of the spec; spec.Addon names the add-on.
func NewAddon(spec state.StepSpec, d Deps) *Addon {
	d = d.withDefaults()
	return &Addon{spec: spec, d: d, upd: newUpdates(d, spec.Addon)}
}

// Spec is the step as data.
func (s *Addon) Spec() state.StepSpec { return s.spec }

// Observe reads the add-on. Done: ACTIVE at spec.To or above. Blocked: it is not
// there any more.
func (s *Addon) Observe(ctx context.Context) (state.Observation, error) {
	a, err := s.read(ctx)
	if err != nil {
		return state.Observation{}, err
	}
	if a == nil {
		stop := s.gone()
		return state.Observation{Status: state.Blocked, Reason: stop.Why, Cure: stop.Cure}, nil
	}
	at := fmt.Sprintf("add-on %s is %s at %s", s.spec.Addon, a.Status, awssdk.ToString(a.AddonVersion))
	if s.there(a) && a.Status == ekstypes.AddonStatusActive {
		return state.Observation{Status: state.Done, Reason: at}, nil
	}
	return state.Observation{Status: state.Ready, Reason: at + issuesOf(a)}, nil
}

// Act raises the add-on and returns when it is ACTIVE at its version.
func (s *Addon) Act(ctx context.Context, rec state.Recorder) error {
	run := &raise{Addon: s, rec: rec}
	for {
		a, err := s.read(ctx)
		if err != nil {
			return err
		}
		if a == nil {
			return s.gone()
		}
		last, err := lastAttempt(s.d.History, s.spec.ID, callUpdateAddon)
		if err != nil {
			return err
		}
		switch {
		case last != nil && !last.closed && last.updateID != "":
			err = run.follow(ctx, last, last.updateID)
		case s.there(a) && a.Status != ekstypes.AddonStatusUpdating:
			return run.settle(ctx, last)
		case last != nil && !last.closed:
			err = run.recover(ctx, last, a)
		default:
			err = run.begin(ctx, a, last)
		}
		if err != nil {
			return err
		}
	}
}

// read is the add-on as EKS states it; nil when there is none.
func (s *Addon) read(ctx context.Context) (*ekstypes.Addon, error) {
	out, err := s.d.EKS.DescribeAddon(ctx, &eks.DescribeAddonInput{ClusterName: &s.d.Cluster, AddonName: &s.spec.Addon})
	if err != nil {
		if aws.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read add-on %s of cluster %s: %w", s.spec.Addon, s.d.Cluster, err)
	}
	return out.Addon, nil
}

func (s *Addon) there(a *ekstypes.Addon) bool {
	return compareAddon(awssdk.ToString(a.AddonVersion), s.spec.To) >= 0
}

func (s *Addon) gone() *state.Stop {
	return &state.Stop{Code: state.ExitBlocked,
		Why:  fmt.Sprintf("cluster %s has no managed add-on %s any more", s.d.Cluster, s.spec.Addon),
		Cure: "find out who removed it, then plan anew"}
}

// issuesOf lists what EKS states about an add-on's health.
func issuesOf(a *ekstypes.Addon) string {
	if a.Health == nil {
		return ""
	}
	var parts []string
	for _, i := range a.Health.Issues {
		text := fmt.Sprintf("%s: %s", i.Code, awssdk.ToString(i.Message))
		if len(i.ResourceIds) > 0 {
			text += " (" + strings.Join(i.ResourceIds, ", ") + ")"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + state.Clean(strings.Join(parts, "; "))
}

// raise is one Act of an add-on.
type raise struct {
	*Addon
	rec state.Recorder
	// busy is when something else began to be in the way.
	busy time.Time
}

// begin starts a new attempt once no other update of the add-on runs.
func (r *raise) begin(ctx context.Context, a *ekstypes.Addon, last *attempt) error {
	switch a.Status {
	case ekstypes.AddonStatusUpdating, ekstypes.AddonStatusCreating:
		return r.giveWay(ctx, a)
	case ekstypes.AddonStatusDeleting:
		return r.gone()
	}
	detail := next(last, r.spec.From, r.spec.To)
	detail.Configuration = configurationOf(a)
	seq, err := r.rec.Intent(callUpdateAddon, r.upd.object(), detail, nil)
	if err != nil {
		return fmt.Errorf("write down the intent to raise %s: %w", r.upd.object(), err)
	}
	return r.send(ctx, &attempt{attemptDetail: detail, seq: seq, at: r.d.Clock.Now()}, a)
}

// recover takes up an attempt whose outcome nobody knows.
func (r *raise) recover(ctx context.Context, last *attempt, a *ekstypes.Addon) error {
	found, err := r.upd.ofAttempt(ctx, last, ekstypes.UpdateTypeAddonUpdate)
	if err != nil {
		return err
	}
	if found != nil {
		return r.outcome(last.seq, state.Found, fmt.Sprintf("update %s, found after a stop", describe(found)), awssdk.ToString(found.Id))
	}
	if err := state.Guard(r.rec, callUpdateAddon+" on "+r.upd.object()); err != nil {
		return fmt.Errorf("raise %s to %s: %w", r.upd.object(), r.spec.To, err)
	}
	return r.send(ctx, last, a)
}

// send makes the call. The service account's role is sent again as it is, since an
// update without it would fall back to the node's role.
func (r *raise) send(ctx context.Context, try *attempt, a *ekstypes.Addon) error {
	in := &eks.UpdateAddonInput{
		ClusterName: &r.d.Cluster, AddonName: &r.spec.Addon, AddonVersion: &r.spec.To,
		ResolveConflicts: ekstypes.ResolveConflictsPreserve, ClientRequestToken: &try.Token,
	}
	if awssdk.ToString(a.ServiceAccountRoleArn) != "" {
		in.ServiceAccountRoleArn = a.ServiceAccountRoleArn
	}
	out, err := r.d.EKS.UpdateAddon(ctx, in)
	switch {
	case err != nil && aws.IsRejected(err):
		return r.rejected(ctx, try, err)
	case err != nil:
		return fmt.Errorf("raise %s to %s: %w", r.upd.object(), r.spec.To, err)
	case out.Update == nil || awssdk.ToString(out.Update.Id) == "":
		return fmt.Errorf("raise %s to %s: EKS took the request but named no update", r.upd.object(), r.spec.To)
	}
	return r.outcome(try.seq, state.Accepted, "update "+describe(out.Update), awssdk.ToString(out.Update.Id))
}

func (r *raise) outcome(seq int64, result state.Result, text, updateID string) error {
	var detail any
	if updateID != "" {
		detail = updateDetail{UpdateID: updateID}
	}
	if err := r.rec.Outcome(seq, result, state.Clean(text), detail); err != nil {
		return fmt.Errorf("write down what came of raising %s: %w", r.upd.object(), err)
	}
	return nil
}

// rejected deals with EKS's own refusal.
func (r *raise) rejected(ctx context.Context, try *attempt, refusal error) error {
	msg := aws.Message(refusal)
	if aws.ErrorCode(refusal) != "ResourceInUseException" {
		if err := r.outcome(try.seq, state.Rejected, msg, ""); err != nil {
			return err
		}
		if aws.IsDenied(refusal) {
			return fmt.Errorf("not allowed to raise %s: the caller needs eks:UpdateAddon: %w", r.upd.object(), refusal)
		}
		return fmt.Errorf("EKS refuses to raise %s from %s to %s: %s; mend that, then run the same command again: %w",
			r.upd.object(), r.spec.From, r.spec.To, msg, refusal)
	}
	u, err := r.upd.running(ctx, msg)
	if err != nil {
		return err
	}
	if u != nil && leadsTo(u, ekstypes.UpdateTypeAddonUpdate, r.spec.To) {
		return r.outcome(try.seq, state.Found, fmt.Sprintf("update %s was already running", describe(u)), awssdk.ToString(u.Id))
	}
	if err := r.outcome(try.seq, state.Rejected, msg, ""); err != nil {
		return err
	}
	return r.waitFor(ctx, u, msg)
}

// giveWay follows an update to the same version that somebody else started, and
// waits for any other.
func (r *raise) giveWay(ctx context.Context, a *ekstypes.Addon) error {
	u, err := r.upd.running(ctx, "")
	if err != nil {
		return err
	}
	if u == nil || !leadsTo(u, ekstypes.UpdateTypeAddonUpdate, r.spec.To) {
		return r.waitFor(ctx, u, fmt.Sprintf("add-on is %s%s", a.Status, issuesOf(a)))
	}
	text := fmt.Sprintf("update %s of %s was started by somebody else; it is followed", describe(u), r.upd.object())
	if err := r.rec.Record(state.Record{Kind: state.RecordNote, Text: state.Clean(text)}); err != nil {
		return fmt.Errorf("write down that an update was found: %w", err)
	}
	return r.follow(ctx, nil, awssdk.ToString(u.Id))
}

// waitFor waits for what keeps the add-on busy.
func (r *raise) waitFor(ctx context.Context, u *ekstypes.Update, why string) error {
	if r.busy.IsZero() {
		r.busy = r.d.Clock.Now()
	}
	if err := r.upd.noteBusy(r.rec, u); err != nil {
		return err
	}
	return r.upd.waitOut(ctx, r.rec, r.busy, u, why)
}

// follow waits for an update to end, and then for the add-on to be ACTIVE; try is
// nil when the update is somebody else's. An update that hangs longer than the
// add-on's patience is a failure that shows the add-on's health: a bad
// configuration never ends by itself (aws/containers-roadmap#2242).
func (r *raise) follow(ctx context.Context, try *attempt, id string) error {
	u, err := r.upd.watch(ctx, r.rec, id, r.spec.Expect, func(ctx context.Context, running time.Duration) (string, error) {
		a, err := r.read(ctx)
		if err != nil || a == nil {
			return "", err
		}
		if running >= r.d.AddonPatience {
			return "", fmt.Errorf("update %s of %s is not done after %s; add-on is %s%s; mend what its health says, then run the same command again",
				id, r.upd.object(), running.Round(time.Second), a.Status, issuesOf(a))
		}
		return issuesOf(a), nil
	})
	if err != nil {
		return err
	}
	if u == nil {
		return fmt.Errorf("EKS does not know update %s of %s; look at `aws eks list-updates --name %s --addon-name %s`", id, r.upd.object(), r.d.Cluster, r.spec.Addon)
	}
	if u.Status != ekstypes.UpdateStatusSuccessful {
		text := failure(r.upd.object(), u)
		if a, err := r.read(ctx); err == nil && a != nil {
			text += issuesOf(a)
		}
		if try != nil {
			if err := r.outcome(try.seq, state.Failed, text, id); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s", text)
	}
	return r.settle(ctx, try)
}

// settle waits until the add-on is ACTIVE at its version and closes the attempt. An
// add-on that stays in another state for longer than its patience is a failure.
func (r *raise) settle(ctx context.Context, last *attempt) error {
	began := r.d.Clock.Now()
	for {
		a, err := r.read(ctx)
		if err != nil {
			return err
		}
		if a == nil {
			return r.gone()
		}
		at := fmt.Sprintf("add-on is %s at %s", a.Status, awssdk.ToString(a.AddonVersion))
		if r.there(a) && a.Status == ekstypes.AddonStatusActive {
			return r.closeAttempt(last, a, at)
		}
		if waited := r.d.Clock.Since(began); waited >= r.d.AddonPatience {
			return fmt.Errorf("%s: %s for %s%s; mend what its health says, then run the same command again",
				r.upd.object(), at, waited.Round(time.Second), issuesOf(a))
		}
		r.rec.Waiting(state.Clean(at + issuesOf(a)))
		if err := r.d.pause(ctx); err != nil {
			return fmt.Errorf("wait for %s to be ACTIVE: %w", r.upd.object(), err)
		}
	}
}

// closeAttempt records the end of an attempt, and warns when the update did not keep
// the configuration: CoreDNS without computeType Fargate stays Pending on a cluster
// without nodes (eksctl-io/eksctl#2268).
func (r *raise) closeAttempt(last *attempt, a *ekstypes.Addon, text string) error {
	if last == nil || last.closed {
		return nil
	}
	if last.Configuration != configurationOf(a) {
		warning := fmt.Sprintf("the configuration values of %s are not those from before its update; compare them (`aws eks describe-addon`)", r.upd.object())
		if err := r.rec.Record(state.Record{Kind: state.RecordWarning, Text: warning}); err != nil {
			return fmt.Errorf("write down a warning about %s: %w", r.upd.object(), err)
		}
	}
	if last.updateID == "" {
		return r.outcome(last.seq, state.Found, text, "")
	}
	return r.outcome(last.seq, state.Succeeded, text, last.updateID)
}

// configurationOf digests the configuration values, which are not for the journal.
func configurationOf(a *ekstypes.Addon) string {
	values := awssdk.ToString(a.ConfigurationValues)
	if values == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(values))
	return hex.EncodeToString(sum[:8])
}
