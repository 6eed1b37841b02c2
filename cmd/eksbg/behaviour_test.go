package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/state"
)

// words folds the wrapping of messages away.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

// says fails when the output lacks one of the parts.
func says(t *testing.T, out string, parts ...string) {
	t.Helper()
	folded := words(out)
	for _, p := range parts {
		if !strings.Contains(folded, p) {
			t.Errorf("does not say %q:\n%s", p, out)
		}
	}
}

// applyExit runs apply to its end and holds its exit code.
func applyExit(t *testing.T, box *sandbox.Sandbox, want int, args ...string) string {
	t.Helper()
	out, exit := runOnce(t, box, nil, append([]string{"apply", box.PlanFile(), "--yes"}, args...)...)
	if exit != want {
		t.Errorf("apply %v: exit %d, want %d\n%s", args, exit, want, out)
	}
	return out
}

// weightsNow are the weights of the route 53 record and the listener as the journal
// last read them.
func shares(t *testing.T, box *sandbox.Sandbox) []state.Share {
	t.Helper()
	records, _, _, err := readRun(journalPath(box.PlanFile(), "shop", ""))
	if err != nil {
		t.Fatal(err)
	}
	last, ok := state.LastOf(records, state.RecordTraffic)
	if !ok {
		t.Fatal("no traffic was recorded")
	}
	return last.Traffic
}

func wantShares(t *testing.T, box *sandbox.Sandbox, side state.Side, percent int) {
	t.Helper()
	for _, s := range shares(t, box) {
		if got := s.Percent(side); got != percent {
			t.Errorf("%s: %s has %d %%, want %d", s.Target, side, got, percent)
		}
	}
}

func TestAFailedGatePutsTheTrafficBackAndWaitsForApproval(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	// Green answers 502 to half of what it gets, but only once it has real traffic.
	box.Fail(sandbox.Failure{Cluster: "green", Status: 502, Percent: 50, Share: 0.3})
	out := applyExit(t, box, 5)
	says(t, out, "502", "blue 100 %, green 0 %", "--approve cutover", "(exit 5)")
	wantShares(t, box, state.Blue, 100)

	// Semantics 16: the next apply stops, whatever the plan file says.
	box.Heal("green")
	says(t, applyExit(t, box, 4), "approval", "--approve cutover")
	wantShares(t, box, state.Blue, 100)
	applyExit(t, box, 0, "--approve", "cutover")
	wantShares(t, box, state.Green, 100)
	onceEach(t, requests(t, box))
}

// killedBeforeThePutBack is a sandbox whose run was killed after a gate failed, when the
// put-back was about to be made. Green still fails.
func killedBeforeThePutBack(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	box := startSandbox(t, "hot", testSpeed)
	box.Fail(sandbox.Failure{Cluster: "green", Status: 502, Percent: 50, Share: 0.3})
	// Attach, 10 %: the third change of the listener is the put-back.
	held := holdAt(t, box, wire.Fault{Call: "elbv2:ModifyListener", Nth: 3, Hold: "before"})
	p := apply(t, box)
	p.reaches(t, held)
	kill(t, p)
	return box
}

// Semantics 12: killed between the verdict and the put-back, the next process puts
// back first, however well the destination does by then.
func TestKilledBeforeThePutBackItPutsBackFirst(t *testing.T) {
	t.Parallel()
	box := killedBeforeThePutBack(t)
	box.Heal("green")
	says(t, applyExit(t, box, 5), "blue 100 %, green 0 %")
	wantShares(t, box, state.Blue, 100)
	applyExit(t, box, 0, "--approve", "cutover")
}

func TestApprovalsOfThePlanFile(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed, func(sc *sandbox.Scenario) { sc.Plan.Approvals = []string{"cutover"} })
	says(t, applyExit(t, box, 4), "traffic/10 waits for an approval of phase cutover")
	applyExit(t, box, 0, "--approve", "cutover")
}

func TestExpiredCredentialsStopResumable(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"ExpiredTokenException", "ExpiredToken"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			box := startSandbox(t, "hot", testSpeed)
			call := "eks:DescribeUpdate"
			if code == "ExpiredToken" {
				call = "elbv2:*"
			}
			if err := box.Faults().Add(wire.Fault{Call: call, Nth: 3, Times: -1, Error: code, Message: "The security token included in the request is expired"}); err != nil {
				t.Fatal(err)
			}
			out := applyExit(t, box, 4)
			says(t, out, "expired", "aws sso login")
			box.Faults().Clear()
			applyExit(t, box, 0)
			onceEach(t, requests(t, box))
		})
	}
}

func TestTwoProcessesOneLock(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	held := holdAt(t, box, wire.Fault{Call: "eks:UpdateClusterVersion", Hold: "after"})
	p := apply(t, box)
	p.reaches(t, held)
	says(t, applyExit(t, box, 6), "is in use by", "eksbg status")
	// status reads beside it.
	out, exit := runOnce(t, box, nil, "status", box.PlanFile())
	if exit != 0 {
		t.Errorf("status: exit %d", exit)
	}
	says(t, out, "at work", "control plane 1.31 -> 1.32")
	kill(t, p)
	out, _ = runOnce(t, box, nil, "status", box.PlanFile())
	says(t, out, "no process holds this run", "Go on eksbg apply")
	applyExit(t, box, 0)
}

// holdAt adds a hold and gives a channel that closes when it is met first.
func holdAt(t *testing.T, box *sandbox.Sandbox, f wire.Fault) <-chan struct{} {
	t.Helper()
	held := make(chan struct{})
	var once sync.Once
	box.Faults().OnHold(func(wire.Call) { once.Do(func() { close(held) }) })
	if err := box.Faults().Add(f); err != nil {
		t.Fatal(err)
	}
	return held
}

func TestInterruptsLeaveAResumableRun(t *testing.T) {
	t.Parallel()
	slow := func(sc *sandbox.Scenario) { sc.Plan.Hold = 10 * time.Hour }
	tests := map[string]struct {
		at     string
		onStop string
		sig    syscall.Signal
		says   []string
		green  int
	}{
		"while a control plane goes up":    {"eks:DescribeUpdate", "", syscall.SIGINT, []string{"interrupted", "(exit 130)"}, -1},
		"in the cutover, back":             {"route53:GetChange", "back", syscall.SIGTERM, []string{"(exit 130)"}, 0},
		"in the cutover, hold":             {"route53:GetChange", "hold", syscall.SIGINT, []string{"(exit 130)", "Nobody watches these weights"}, 10},
		"SIGTERM while pods are restarted": {"k8s:patch deployments", "", syscall.SIGTERM, []string{"(exit 130)"}, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := startSandbox(t, "hot", testSpeed, func(sc *sandbox.Scenario) {
				if tt.onStop != "" {
					slow(sc)
					sc.Plan.OnStop = tt.onStop
				}
			})
			seen := make(chan struct{})
			var once sync.Once
			box.Log().Watch(func(e wire.Entry) {
				if e.Call == tt.at {
					once.Do(func() { close(seen) })
				}
			})
			p := apply(t, box)
			p.reaches(t, seen)
			if err := p.cmd.Process.Signal(tt.sig); err != nil {
				t.Fatal(err)
			}
			if got := p.exit(); got != 130 {
				t.Fatalf("exit %d, want 130\n%s", got, p.out.String())
			}
			says(t, p.out.String(), tt.says...)
			switch tt.green {
			case 0:
				wantShares(t, box, state.Blue, 100)
			case 10:
				says(t, p.out.String(), "blue 90 %, green 10 %")
			}
			shortenHold(t, box.PlanFile())
			args := []string{}
			if tt.onStop == "back" {
				args = append(args, "--approve", "cutover")
			}
			applyExit(t, box, 0, args...)
			wantShares(t, box, state.Green, 100)
			onceEach(t, requests(t, box))
		})
	}
}

// shortenHold makes the hold of a plan file short: a hold may change during a run.
func shortenHold(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "  hold: ") {
			lines[i] = "  hold: 100ms"
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The journal is lost in the middle of the cutover: the split is refused until a
// person says who serves, then the present share is held and gated before it goes on.
func TestAJournalLostInTheCutover(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	held := holdAt(t, box, wire.Fault{Call: "elbv2:ModifyListener", Nth: 4, Hold: "before"}) // attach, 10 %, 50 %, 100 %
	p := apply(t, box)
	p.reaches(t, held)
	kill(t, p)
	if err := os.Remove(journalPath(box.PlanFile(), "shop", "")); err != nil {
		t.Fatal(err)
	}
	says(t, applyExit(t, box, 3), "route53/api.shop.example.com: blue 0, green 100", "alb/shop: blue 50, green 50", "--active")
	says(t, applyExit(t, box, 0, "--active", "blue"), "traffic stays at 50 %", "the weights from before are not recorded")
	wantShares(t, box, state.Green, 100)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*sandbox.Scenario)
		says   []string
	}{
		"a load balancer that a controller owns": {func(sc *sandbox.Scenario) {
			sc.ALBs[0].Tags = map[string]string{"elbv2.k8s.aws/cluster": "shop-blue"}
		}, []string{"elbv2.k8s.aws/cluster", "shop-blue"}},
		"a record that external-dns owns": {func(sc *sandbox.Scenario) {
			sc.Zones[0].Records = append(sc.Zones[0].Records, sandbox.Record{Name: "a-api.shop.example.com", Type: "TXT", TTL: 300, SetIdentifier: "blue", Weight: new(int64),
				Values: []string{`"heritage=external-dns,external-dns/owner=shop-cluster,external-dns/resource=ingress/shop/web"`}})
		}, []string{"external-dns", "shop-cluster"}},
		"split weights without a journal": {func(sc *sandbox.Scenario) {
			half := int64(50)
			sc.Zones[0].Records[0].Weight, sc.Zones[0].Records[1].Weight = &half, &half
		}, []string{"split", "blue 50, green 50", "--active"}},
		"an insight in ERROR": {func(sc *sandbox.Scenario) {
			sc.Insights = append(sc.Insights, sandbox.Insight{Cluster: "green", Name: "Deprecated APIs removed in Kubernetes v1.32", Version: "1.32", Status: "ERROR", Reason: "an old client"})
		}, []string{"insight/deprecated-apis-removed-in-kubernetes-v1-32", "waive"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := startSandbox(t, "hot", testSpeed, tt.change)
			before := world(t, box)
			says(t, applyExit(t, box, 3), append(tt.says, "nothing has been changed")...)
			out, exit := runOnce(t, box, nil, "plan", box.PlanFile(), "--detailed-exitcode")
			if exit != 3 {
				t.Errorf("plan: exit %d, want 3\n%s", exit, out)
			}
			if world(t, box) != before {
				t.Error("the world changed")
			}
		})
	}
}

func TestAWaivedInsightDoesNotBlock(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed, func(sc *sandbox.Scenario) {
		sc.Insights = append(sc.Insights, sandbox.Insight{Cluster: "green", Name: "Deprecated APIs removed in Kubernetes v1.32", Version: "1.32", Status: "ERROR", Reason: "an old client"})
		sc.Plan.Waive = []sandbox.Waive{{Check: "insight/deprecated-apis-removed-in-kubernetes-v1-32", Reason: "the client retires", Days: 3}}
	})
	says(t, applyExit(t, box, 0), "waived: the client retires")
}

func TestThePrivateFilesOfARunArePrivate(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	applyExit(t, box, 0)
	dir := filepath.Join(filepath.Dir(box.PlanFile()), ".eksbg")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", e.Name(), info.Mode().Perm())
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{wire.Secret, "k8s-aws-v1."} {
			if strings.Contains(string(b), secret) {
				t.Errorf("%s holds a secret", e.Name())
			}
		}
	}
}

func TestTheOtherScenarios(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		exit int
		says []string
	}{
		"article": {0, []string{"1.25 -> 1.26"}},
		"stuck":   {1, []string{"failed"}},
		"flaky":   {0, []string{"1.31 -> 1.32"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := startSandbox(t, name, testSpeed)
			says(t, applyExit(t, box, tt.exit), tt.says...)
		})
	}
}

// EKS refuses the second hop while kubelets lag: the restart is put in front of it, and
// the hop is tried again.
func TestARefusedHopPutsTheRestartInFront(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed, func(sc *sandbox.Scenario) { sc.KubeletRule = sandbox.KubeletStrict })
	out := applyExit(t, box, 0)
	says(t, out, "Kubelet version of Fargate pods must be updated to match cluster version 1.32", "comes first")
	refused := 0
	for _, e := range requests(t, box) {
		if e.Call == "eks:UpdateClusterVersion" && !e.Accepted {
			refused++
		}
	}
	if refused == 0 {
		t.Error("EKS refused nothing, so this test shows nothing")
	}
	onceEach(t, requests(t, box))
}
