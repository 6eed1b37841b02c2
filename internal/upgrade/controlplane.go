package upgrade

import (
	"context"
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// ControlPlane raises the control plane of one cluster by one minor, spec.From to
// spec.To. It is done when EKS and the API server both say so.
type ControlPlane struct {
	spec state.StepSpec
	d    Deps
	upd  *updates
}

// NewControlPlane makes the step of the spec.
func NewControlPlane(spec state.StepSpec, d Deps) *ControlPlane {
	d = d.withDefaults()
	return &ControlPlane{spec: spec, d: d, upd: newUpdates(d, "")}
}

// Spec is the step as data.
func (s *ControlPlane) Spec() state.StepSpec { return s.spec }

// Observe reads the cluster and, when EKS says that it is there, the API server.
// Done: ACTIVE at spec.To or above and the server answers so. Blocked: below
// spec.From, or in a state that no update leads out of.
func (s *ControlPlane) Observe(ctx context.Context) (state.Observation, error) {
	c, err := s.read(ctx)
	if err != nil {
		return state.Observation{}, err
	}
	if stop := s.refuse(c); stop != nil {
		return state.Observation{Status: state.Blocked, Reason: stop.Why, Cure: stop.Cure}, nil
	}
	version := awssdk.ToString(c.Version)
	if cluster.CompareMinor(version, s.spec.To) < 0 || c.Status != ekstypes.ClusterStatusActive {
		return state.Observation{Status: state.Ready, Reason: fmt.Sprintf("cluster %s is %s at %s", s.d.Cluster, c.Status, version)}, nil
	}
	minor, full, err := s.d.Server.ServerVersion(ctx)
	if err != nil {
		return state.Observation{}, err
	}
	if cluster.CompareMinor(minor, s.spec.To) < 0 {
		return state.Observation{Status: state.Ready, Reason: fmt.Sprintf("cluster %s is ACTIVE at %s, its API server still answers %s", s.d.Cluster, version, minor)}, nil
	}
	return state.Observation{Status: state.Done, Reason: "API server answers " + state.Clean(full)}, nil
}

// Act takes the cluster to spec.To and returns when EKS and the API server say that
// it is there. It takes up whatever a former process or somebody else has started.
func (s *ControlPlane) Act(ctx context.Context, rec state.Recorder) error {
	run := &hop{ControlPlane: s, rec: rec, began: s.d.Clock.Now()}
	for {
		c, err := s.read(ctx)
		if err != nil {
			return err
		}
		if stop := s.refuse(c); stop != nil {
			return stop
		}
		last, err := lastAttempt(s.d.History, s.spec.ID, callUpdateCluster)
		if err != nil {
			return err
		}
		if cluster.CompareMinor(awssdk.ToString(c.Version), s.spec.To) >= 0 {
			return run.settle(ctx, last)
		}
		switch {
		case last == nil || last.closed:
			err = run.begin(ctx, c, last)
		case last.updateID != "":
			err = run.follow(ctx, last.seq, last.updateID)
		default:
			err = run.recover(ctx, last)
		}
		if err != nil {
			return err
		}
	}
}

// read is the cluster as EKS states it.
func (s *ControlPlane) read(ctx context.Context) (*ekstypes.Cluster, error) {
	out, err := s.d.EKS.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &s.d.Cluster})
	if err != nil {
		return nil, fmt.Errorf("read cluster %s from EKS: %w", s.d.Cluster, err)
	}
	if out.Cluster == nil {
		return nil, fmt.Errorf("read cluster %s from EKS: the answer holds no cluster", s.d.Cluster)
	}
	return out.Cluster, nil
}

// refuse stops when the cluster is not what the plan was made for.
func (s *ControlPlane) refuse(c *ekstypes.Cluster) *state.Stop {
	version := awssdk.ToString(c.Version)
	lag, ok := cluster.Skew(version, s.spec.From)
	switch {
	case c.Status == ekstypes.ClusterStatusFailed || c.Status == ekstypes.ClusterStatusDeleting:
		return &state.Stop{Code: state.ExitBlocked,
			Why:  fmt.Sprintf("cluster %s is %s%s", s.d.Cluster, c.Status, healthOf(c)),
			Cure: "look at the cluster's health in EKS; a cluster in this state takes no update"}
	case !ok:
		return &state.Stop{Code: state.ExitBlocked,
			Why:  fmt.Sprintf("cluster %s is at %q, which is not comparable with %s", s.d.Cluster, version, s.spec.From),
			Cure: "plan anew"}
	case lag > 0:
		return &state.Stop{Code: state.ExitBlocked,
			Why:  fmt.Sprintf("cluster %s is at %s, below the %s that this step starts from: somebody rolled it back, or a step before was left out", s.d.Cluster, version, s.spec.From),
			Cure: "find out who changed it, then plan anew"}
	}
	return nil
}

// healthOf lists the issues that EKS states for a cluster.
func healthOf(c *ekstypes.Cluster) string {
	if c.Health == nil {
		return ""
	}
	text := ""
	for _, i := range c.Health.Issues {
		text += fmt.Sprintf("; %s: %s", i.Code, awssdk.ToString(i.Message))
	}
	return state.Clean(text)
}

// hop is one Act of a control plane.
type hop struct {
	*ControlPlane
	rec state.Recorder
	// began is when Act began, busy when something else began to be in the way.
	began, busy time.Time
	// checked: the findings for the hop were looked at.
	checked bool
	// refusals counts those for lagging kubelets after the restart was done.
	refusals int
}

// begin starts a new attempt, once nothing else is under way and nothing is found
// that speaks against it.
func (h *hop) begin(ctx context.Context, c *ekstypes.Cluster, last *attempt) error {
	if c.Status != ekstypes.ClusterStatusActive {
		return h.giveWay(ctx, fmt.Sprintf("cluster is %s", c.Status))
	}
	if !h.checked {
		if err := h.check(ctx); err != nil {
			return err
		}
		h.checked = true
	}
	detail := next(last, h.spec.From, h.spec.To)
	seq, err := h.rec.Intent(callUpdateCluster, "cluster "+h.d.Cluster, detail, nil)
	if err != nil {
		return fmt.Errorf("write down the intent to raise cluster %s: %w", h.d.Cluster, err)
	}
	return h.send(ctx, &attempt{attemptDetail: detail, seq: seq, at: h.d.Clock.Now()})
}

// recover takes up an attempt whose outcome nobody knows: the update that it
// started if there is one, else the same request again with the same token.
func (h *hop) recover(ctx context.Context, a *attempt) error {
	found, err := h.upd.ofAttempt(ctx, a, ekstypes.UpdateTypeVersionUpdate)
	if err != nil {
		return err
	}
	if found != nil {
		return h.adopt(a.seq, found, "found after a stop")
	}
	if err := state.Guard(h.rec, callUpdateCluster+" on cluster "+h.d.Cluster); err != nil {
		return fmt.Errorf("raise cluster %s to %s: %w", h.d.Cluster, h.spec.To, err)
	}
	return h.send(ctx, a)
}

// send makes the call. An answer that is not EKS's own refusal leaves the attempt
// open: nobody knows whether the update began.
func (h *hop) send(ctx context.Context, a *attempt) error {
	out, err := h.d.EKS.UpdateClusterVersion(ctx, &eks.UpdateClusterVersionInput{
		Name: &h.d.Cluster, Version: &h.spec.To, ClientRequestToken: &a.Token,
	})
	switch {
	case err != nil && aws.IsRejected(err):
		return h.rejected(ctx, a, err)
	case err != nil:
		return fmt.Errorf("raise cluster %s to %s: %w", h.d.Cluster, h.spec.To, err)
	case out.Update == nil || awssdk.ToString(out.Update.Id) == "":
		return fmt.Errorf("raise cluster %s to %s: EKS took the request but named no update", h.d.Cluster, h.spec.To)
	}
	return h.outcome(a.seq, state.Accepted, "update "+describe(out.Update), awssdk.ToString(out.Update.Id))
}

// adopt makes an update that was found the attempt's own.
func (h *hop) adopt(seq int64, u *ekstypes.Update, how string) error {
	return h.outcome(seq, state.Found, fmt.Sprintf("update %s, %s", describe(u), how), awssdk.ToString(u.Id))
}

func (h *hop) outcome(seq int64, result state.Result, text, updateID string) error {
	var detail any
	if updateID != "" {
		detail = updateDetail{UpdateID: updateID}
	}
	if err := h.rec.Outcome(seq, result, state.Clean(text), detail); err != nil {
		return fmt.Errorf("write down what came of raising cluster %s: %w", h.d.Cluster, err)
	}
	return nil
}

// follow waits for an update to end; seq is the intent it belongs to, 0 when it is
// somebody else's. A failed one is an error that says all that EKS says.
func (h *hop) follow(ctx context.Context, seq int64, id string) error {
	u, err := h.upd.watch(ctx, h.rec, id, h.spec.Expect, nil)
	if err != nil {
		return err
	}
	if u == nil {
		return fmt.Errorf("EKS does not know update %s of cluster %s; look at `aws eks list-updates --name %s`", id, h.d.Cluster, h.d.Cluster)
	}
	if u.Status != ekstypes.UpdateStatusSuccessful {
		text := failure("cluster "+h.d.Cluster, u)
		if seq != 0 {
			if err := h.outcome(seq, state.Failed, text, id); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s", text)
	}
	return h.arrive(ctx)
}

// arrival is how long after a successful update EKS, and then the API server, may
// go on showing the old version; they agree within minutes.
const arrival = 15 * time.Minute

// arrive waits after a successful update until EKS shows the new version: for a
// while it still says ACTIVE at the old one.
func (h *hop) arrive(ctx context.Context) error {
	began := h.d.Clock.Now()
	for {
		c, err := h.read(ctx)
		if err != nil {
			return err
		}
		if cluster.CompareMinor(awssdk.ToString(c.Version), h.spec.To) >= 0 {
			return nil
		}
		if waited := h.d.Clock.Since(began); waited >= arrival {
			minor, _, err := h.d.Server.ServerVersion(ctx)
			switch {
			case err != nil && ends(ctx, err):
				return err
			case err != nil:
				minor = "with an error: " + err.Error()
			}
			return h.astray(c, minor, waited)
		}
		h.rec.Waiting(fmt.Sprintf("update successful, cluster still reads %s at %s", c.Status, awssdk.ToString(c.Version)))
		if err := h.d.pause(ctx); err != nil {
			return fmt.Errorf("wait for cluster %s to show %s: %w", h.d.Cluster, h.spec.To, err)
		}
	}
}

// astray is the stop for a version that does not show; the attempt stays open.
func (h *hop) astray(c *ekstypes.Cluster, server string, waited time.Duration) *state.Stop {
	return &state.Stop{Code: state.ExitResumable,
		Why: state.Clean(fmt.Sprintf("cluster %s does not show %s although EKS has called its update done for %s: EKS says %s at %s, the API server answers %s",
			h.d.Cluster, h.spec.To, waited.Round(time.Second), c.Status, awssdk.ToString(c.Version), server)),
		Cure: fmt.Sprintf("look at `aws eks describe-cluster --name %s` and `aws eks list-updates --name %s`; run the same command again to go on waiting, or ask AWS Support", h.d.Cluster, h.d.Cluster)}
}

// settle waits until the cluster is ACTIVE at the new version and its API server
// answers so, and closes the attempt.
func (h *hop) settle(ctx context.Context, last *attempt) error {
	full, err := h.agree(ctx)
	if err != nil {
		return err
	}
	switch {
	case last == nil || last.closed:
		return nil
	case last.updateID == "":
		return h.outcome(last.seq, state.Found, "cluster is ACTIVE at "+h.spec.To, "")
	}
	return h.outcome(last.seq, state.Succeeded, "API server answers "+full, last.updateID)
}

// agree polls EKS and the API server until both say the new version.
func (h *hop) agree(ctx context.Context) (string, error) {
	var active time.Time
	for {
		c, err := h.read(ctx)
		if err != nil {
			return "", err
		}
		if stop := h.refuse(c); stop != nil {
			return "", stop
		}
		text := fmt.Sprintf("cluster is %s at %s", c.Status, awssdk.ToString(c.Version))
		if c.Status == ekstypes.ClusterStatusActive && cluster.CompareMinor(awssdk.ToString(c.Version), h.spec.To) >= 0 {
			minor, full, err := h.d.Server.ServerVersion(ctx)
			if err != nil {
				return "", err
			}
			if cluster.CompareMinor(minor, h.spec.To) >= 0 {
				return full, nil
			}
			if active.IsZero() {
				active = h.d.Clock.Now()
			}
			if waited := h.d.Clock.Since(active); waited >= arrival {
				return "", h.astray(c, minor, waited)
			}
			text += ", API server still answers " + minor
		} else {
			active = time.Time{}
		}
		h.rec.Waiting(state.Clean(text))
		if err := h.d.pause(ctx); err != nil {
			return "", fmt.Errorf("wait for the API server of cluster %s to answer %s: %w", h.d.Cluster, h.spec.To, err)
		}
	}
}
