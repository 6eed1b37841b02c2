package upgrade

import (
	"context"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// mostAfterRestart is how many attempts in a row may be refused for lagging kubelets
// although the restart is done, a polling time apart, before that is believed: EKS
// has been seen to look at an old list (eksctl-io/eksctl#2545).
const mostAfterRestart = 3

// rejected deals with EKS's own refusal of an attempt. Nothing has changed then,
// except when somebody's update to the same version is what stands in the way.
func (h *hop) rejected(ctx context.Context, a *attempt, refusal error) error {
	msg := aws.Message(refusal)
	if aws.ErrorCode(refusal) == "ResourceInUseException" {
		return h.busyWith(ctx, a, refusal)
	}
	if err := h.outcome(a.seq, state.Rejected, msg, ""); err != nil {
		return err
	}
	switch {
	case mustRecycle(refusal):
		return h.restartFirst(ctx, msg)
	case aws.ErrorCode(refusal) == "InvalidStateException":
		return h.insightsInTheWay(ctx, msg, refusal)
	case aws.IsDenied(refusal):
		return fmt.Errorf("not allowed to raise cluster %s: the caller needs eks:UpdateClusterVersion: %w", h.d.Cluster, refusal)
	}
	return fmt.Errorf("EKS refuses to raise cluster %s from %s to %s: %s; mend that, then run the same command again: %w",
		h.d.Cluster, h.spec.From, h.spec.To, msg, refusal)
}

// mustRecycle recognises the refusal of lagging kubelets under both codes that EKS
// has used for it: "Kubelet version of Fargate pods must be updated to match cluster
// version 1.20 before updating cluster version; Please recycle all offending pod
// replicas" (oslokommune/okctl#1015, hashicorp/terraform-provider-aws#19478).
func mustRecycle(err error) bool {
	switch aws.ErrorCode(err) {
	case "InvalidRequestException", "InvalidParameterException":
		m := strings.ToLower(aws.Message(err))
		return strings.Contains(m, "must be updated to match cluster version") || strings.Contains(m, "recycle all offending pod")
	}
	return false
}

// restartID is the step that brings the kubelets up before the hop.
func (s *ControlPlane) restartID() string {
	return fmt.Sprintf("%s/restart/before-%s", s.d.Side, s.spec.To)
}

// restarted tells whether that step was seen done in this run.
func (s *ControlPlane) restarted() bool {
	id := s.restartID()
	return state.StepDone(s.d.History.Records(id), id)
}

// restartSpec is that step.
func (s *ControlPlane) restartSpec(cause string) state.StepSpec {
	return state.StepSpec{
		ID: s.restartID(), Phase: state.PhaseRestart, Kind: state.KindRestart, Side: s.d.Side,
		Title:   fmt.Sprintf("restart lagging pods before %s", s.spec.To),
		Changes: "a rollout for each owner of a lagging pod",
		Expect:  state.Expect{Min: state.Duration(2 * time.Minute), Max: state.Duration(20 * time.Minute)},
		To:      s.spec.From, Cause: cause,
	}
}

// restartFirst asks for a restart in front of the hop. When that was done already
// and EKS still refuses a few polls later, the run stops with EKS's words.
func (h *hop) restartFirst(ctx context.Context, cause string) error {
	if !h.restarted() {
		return &state.NeedsFirst{Spec: h.restartSpec(cause)}
	}
	if h.refusals++; h.refusals < mostAfterRestart {
		h.rec.Waiting("EKS still sees old kubelets: " + cause)
		if err := h.d.pause(ctx); err != nil {
			return fmt.Errorf("wait for EKS to see the restarted pods of cluster %s: %w", h.d.Cluster, err)
		}
		return nil
	}
	return &state.Stop{Code: state.ExitBlocked,
		Why:  fmt.Sprintf("the pods of cluster %s were restarted, and EKS still refuses the hop to %s: %s", h.d.Cluster, h.spec.To, cause),
		Cure: "look for nodes below " + h.spec.From + " (`kubectl get nodes`), those of terminating pods, bare pods and Jobs among them; delete what holds them, then run the same command again"}
}

// insightsInTheWay names what EKS holds against the hop. It would take `force` to
// go on, which is never sent.
func (h *hop) insightsInTheWay(ctx context.Context, msg string, refusal error) error {
	found, err := readInsights(ctx, h.d.EKS, h.d.Cluster, h.spec.To, h.d.Side)
	if err != nil && ends(ctx, err) {
		return err
	}
	var names []string
	for _, f := range found {
		if f.Severity == state.SeverityError || f.Severity == state.SeverityUnknown {
			names = append(names, f.Check)
		}
	}
	in := "its upgrade insights could not be read"
	if err == nil {
		in = "no upgrade insight is in ERROR or UNKNOWN"
	}
	if len(names) > 0 {
		in = "insights in the way: " + strings.Join(names, ", ")
	}
	return &state.Stop{Code: state.ExitBlocked, Cause: refusal,
		Why:  fmt.Sprintf("EKS holds cluster %s not ready for %s: %s; %s", h.d.Cluster, h.spec.To, msg, in),
		Cure: fmt.Sprintf("mend what `aws eks list-insights --cluster-name %s` shows, then run the same command again; force is never sent", h.d.Cluster)}
}

// busyWith deals with 409: an update to the same version is adopted, another one is
// waited for by name, and so is one that is not to be seen.
func (h *hop) busyWith(ctx context.Context, a *attempt, refusal error) error {
	msg := aws.Message(refusal)
	u, err := h.upd.running(ctx, msg)
	if err != nil {
		return err
	}
	if u == nil {
		// It may have ended between the refusal and the look.
		if u, err = h.upd.ofAttempt(ctx, a, ekstypes.UpdateTypeVersionUpdate); err != nil {
			return err
		}
	}
	if u != nil && leadsTo(u, ekstypes.UpdateTypeVersionUpdate, h.spec.To) {
		return h.adopt(a.seq, u, "was already running")
	}
	if err := h.outcome(a.seq, state.Rejected, msg, ""); err != nil {
		return err
	}
	return h.waitFor(ctx, u, msg)
}

// giveWay is for a cluster that is not ACTIVE before anything was sent: an update to
// the same version is followed, whoever started it; another one is waited for.
func (h *hop) giveWay(ctx context.Context, why string) error {
	u, err := h.upd.running(ctx, "")
	if err != nil {
		return err
	}
	if u == nil || !leadsTo(u, ekstypes.UpdateTypeVersionUpdate, h.spec.To) {
		return h.waitFor(ctx, u, why)
	}
	text := fmt.Sprintf("update %s of cluster %s was started by somebody else; it is followed", describe(u), h.d.Cluster)
	if err := h.rec.Record(state.Record{Kind: state.RecordNote, Text: state.Clean(text)}); err != nil {
		return fmt.Errorf("write down that an update was found: %w", err)
	}
	return h.follow(ctx, 0, awssdk.ToString(u.Id))
}

// waitFor waits for what keeps the cluster busy.
func (h *hop) waitFor(ctx context.Context, u *ekstypes.Update, why string) error {
	if h.busy.IsZero() {
		h.busy = h.d.Clock.Now()
	}
	if err := h.upd.noteBusy(h.rec, u); err != nil {
		return err
	}
	return h.upd.waitOut(ctx, h.rec, h.busy, u, why)
}

// check looks at the findings for the hop. One that blocks and that a step cures
// puts that step in front; any other stops the run.
func (h *hop) check(ctx context.Context) error {
	findings, err := h.d.Check(ctx, h.spec.To)
	if err != nil {
		return fmt.Errorf("check cluster %s before %s: %w", h.d.Cluster, h.spec.To, err)
	}
	var block []state.Finding
	var first *state.NeedsFirst
	for _, f := range findings {
		if !f.Blocks() {
			continue
		}
		need, later, err := h.cureFor(ctx, f)
		switch {
		case err != nil:
			return err
		case need == nil && !later:
			block = append(block, f)
		case first == nil:
			first = need
		}
	}
	switch {
	case len(block) > 0:
		return blocked(h.d.Cluster, h.spec.To, block)
	case first != nil:
		return first
	}
	return nil
}

// cureFor is the step that has to come first to remove a finding, if there is one
// that has not been done; later says that a step after the hop removes it.
func (h *hop) cureFor(ctx context.Context, f state.Finding) (need *state.NeedsFirst, later bool, err error) {
	switch Curable(f) {
	case state.KindRestart:
		if !h.restarted() {
			need = &state.NeedsFirst{Spec: h.restartSpec(f.Text)}
		}
	case state.KindAddon:
		raises, err := Addons(ctx, h.d.EKS, h.d.Cluster, h.spec.From, h.spec.To, h.d.Addons)
		if err != nil {
			return nil, false, err
		}
		for _, r := range raises {
			if r.Before {
				spec := AddonSpec(h.d.Side, r)
				spec.Cause = f.Text
				return &state.NeedsFirst{Spec: spec}, false, nil
			}
		}
		later = len(raises) > 0
	}
	return need, later, nil
}

// blocked is the stop for findings that nothing here cures.
func blocked(clusterName, minor string, findings []state.Finding) *state.Stop {
	var why, cure []string
	for _, f := range findings {
		why = append(why, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Text))
		if f.Cure != "" {
			cure = append(cure, f.Check+": "+f.Cure)
		}
	}
	cure = append(cure, "or waive a finding by its name in the plan file, with a reason and an end (waive:)")
	return &state.Stop{Code: state.ExitBlocked,
		Why:  fmt.Sprintf("cluster %s is not ready for %s\n%s", clusterName, minor, strings.Join(why, "\n")),
		Cure: strings.Join(cure, "\n")}
}
