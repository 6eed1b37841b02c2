package upgrade_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/smithy-go"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

func TestBusyCluster(t *testing.T) {
	t.Run("the same update is adopted", func(t *testing.T) {
		w := newWorld()
		u := w.start("VersionUpdate", "1.32", 9*time.Minute, "Successful")
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "found "+u.id, "succeeded "+u.id)
	})
	t.Run("another one is waited for by name, then tried anew", func(t *testing.T) {
		w := newWorld()
		w.start("LoggingUpdate", "", 3*time.Minute, "Successful")
		w.stale = 10 * time.Minute
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(w.j.waits, func(s string) bool { return strings.Contains(s, "u-0000001 (LoggingUpdate) is InProgress") }) {
			t.Errorf("waits %q", w.j.waits)
		}
		w.wantStory(t, "intent 1", "rejected", "note", "intent 2", "accepted u-0000002", "succeeded u-0000002")
	})
	t.Run("one that cannot be seen ends in a resumable stop", func(t *testing.T) {
		w := newWorld()
		for range 1000 {
			w.refusals = append(w.refusals, &ekstypes.ResourceInUseException{Message: p("cluster is being patched")})
		}
		err := w.step(func(d *upgrade.Deps) { d.BusyPatience = 10 * time.Minute }).Act(bg, w.j)
		var stop *state.Stop
		if !errors.As(err, &stop) || stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "being patched") || len(w.updates) != 0 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("UPDATING before anything is sent", func(t *testing.T) {
		w := newWorld()
		u := w.start("VersionUpdate", "1.32", 9*time.Minute, "Successful")
		w.clk.Step(time.Minute)
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "note")
		if w.count("UpdateClusterVersion") != 0 || !strings.Contains(w.j.records[0].Text, u.id) {
			t.Error("an update of somebody else is followed, not repeated")
		}
	})
}

func TestRecycleFirst(t *testing.T) {
	for name, refusal := range map[string]error{
		"InvalidRequestException":   &ekstypes.InvalidRequestException{Message: p(recycle)},
		"InvalidParameterException": &ekstypes.InvalidParameterException{Message: p("Nodegroups ng-1 must be updated to match cluster version 1.31 before updating cluster version")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.refusals = []error{refusal, refusal}
			err := w.step().Act(bg, w.j)
			var need *state.NeedsFirst
			if !errors.As(err, &need) {
				t.Fatalf("got %v", err)
			}
			s := need.Spec
			if s.ID != "green/restart/before-1.32" || s.Kind != state.KindRestart || s.Phase != state.PhaseRestart || s.To != "1.31" || s.Side != state.Green || s.Title == "" || !strings.Contains(s.Cause, "must be updated to match") {
				t.Errorf("spec %+v", s)
			}
			w.wantStory(t, "intent 1", "rejected")
			// The restart is done; EKS looks at an old list once more, then takes it.
			w.j.records = append(w.j.records, state.Record{Kind: state.RecordDone, Step: s.ID})
			if err := w.step().Act(bg, w.j); err != nil {
				t.Fatal(err)
			}
			w.wantStory(t, "intent 1", "rejected", "intent 2", "rejected", "intent 3", "accepted u-0000001", "succeeded u-0000001")
		})
	}
	t.Run("refused although it was done", func(t *testing.T) {
		w := newWorld()
		for range 100 {
			w.refusals = append(w.refusals, &ekstypes.InvalidRequestException{Message: p(recycle)})
		}
		w.j.records = []state.Record{{Seq: 1, Kind: state.RecordDone, Step: "green/restart/before-1.32"}}
		err := w.step().Act(bg, w.j)
		var stop *state.Stop
		if !errors.As(err, &stop) || stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, recycle) || stop.Cure == "" {
			t.Errorf("got %v", err)
		}
		if n := w.count("UpdateClusterVersion"); n > 5 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestRefusals(t *testing.T) {
	subnets := "Provided subnets subnet-0a Free IPs: 2, need at least 5 IPs in each subnet to be free for this operation"
	for name, tc := range map[string]struct {
		refusal error
		want    []string
	}{
		"subnets":     {&ekstypes.InvalidRequestException{Message: p(subnets)}, []string{subnets, "shop-green"}},
		"unsupported": {&ekstypes.InvalidParameterException{Message: p("unsupported Kubernetes version")}, []string{"unsupported Kubernetes version"}},
		"denied":      {&ekstypes.AccessDeniedException{Message: p("not authorized")}, []string{"eks:UpdateClusterVersion", "not authorized"}},
		"code only":   {&smithy.GenericAPIError{Code: "SomethingNew", Fault: smithy.FaultClient}, []string{"SomethingNew"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.refusals = []error{tc.refusal}
			err := w.step().Act(bg, w.j)
			var stop *state.Stop
			if err == nil || errors.As(err, &stop) || !errors.Is(err, tc.refusal) {
				t.Fatalf("got %v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %v", part, err)
				}
			}
			w.wantStory(t, "intent 1", "rejected")
		})
	}
	t.Run("insights", func(t *testing.T) {
		w := newWorld()
		w.insights = []ekstypes.InsightSummary{insight("Cluster health issues", "ERROR", "1.32"), insight("Kubelet version skew", "PASSING", "1.32")}
		w.refusals = []error{&ekstypes.InvalidStateException{Message: p("readiness insights block")}}
		err := w.step().Act(bg, w.j)
		var stop *state.Stop
		if !errors.As(err, &stop) || stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "insight/cluster-health-issues") || !strings.Contains(stop.Cure, "force is never sent") {
			t.Fatalf("got %v", err)
		}
		w.wantStory(t, "intent 1", "rejected")
	})
}

func TestUnclearErrorsLeaveTheAttemptOpen(t *testing.T) {
	for name, failure := range map[string]error{
		"expired":   &smithy.GenericAPIError{Code: "ExpiredTokenException", Message: "expired"},
		"gave up":   &aws.GaveUpError{Call: "eks:UpdateClusterVersion", Attempts: 40, Err: &ekstypes.ServiceUnavailableException{Message: p("Updates in the cell are disabled")}},
		"no answer": errCrash,
		"server":    &ekstypes.ServerException{Message: p("try again")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.fail["UpdateClusterVersion"] = failure
			if err := w.step().Act(bg, w.j); !errors.Is(err, failure) {
				t.Fatalf("got %v", err)
			}
			w.wantStory(t, "intent 1")
			delete(w.fail, "UpdateClusterVersion")
			if err := w.step().Act(bg, w.j); err != nil {
				t.Fatal(err)
			}
			w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
		})
	}
}
