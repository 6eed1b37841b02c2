package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

var at = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

func file(version string) *planfile.File {
	return &planfile.File{
		Name: "shop", Region: "ap-northeast-1", Variant: "hot", Version: version,
		Restart:  planfile.Restart{MaxParallel: 4},
		Capacity: "check",
		Traffic:  []planfile.Target{{Route53: &planfile.Route53{Record: "api.shop.example.com"}}},
		Cutover:  planfile.Cutover{Stages: []int{10, 50, 100}, Hold: planfile.Duration(5 * time.Minute)},
	}
}

// inventory is a cluster whose every pod sits on a node of its own.
func inventory(side state.Side, version string, kubelets ...string) *cluster.Inventory {
	inv := &cluster.Inventory{Name: "shop-" + string(side), ARN: "arn:aws:eks:ap-northeast-1:111122223333:cluster/shop-" + string(side),
		Version: version, Status: "ACTIVE", CreatedAt: at.AddDate(-1, 0, 0), At: at}
	for i, k := range kubelets {
		node := fmt.Sprintf("fargate-ip-10-0-0-%d", i)
		owner := cluster.Owner{APIVersion: "apps/v1", Namespace: "shop", Kind: "Deployment", Name: fmt.Sprintf("d%d", i)}
		inv.Nodes = append(inv.Nodes, cluster.Node{Name: node, Minor: k, Kubelet: "v" + k + ".9", Compute: "fargate", Ready: true})
		inv.Pods = append(inv.Pods, cluster.Pod{Namespace: "shop", Name: fmt.Sprintf("d%d-x", i), Node: node, Phase: "Running", Ready: true, Owner: owner})
		inv.Workloads = append(inv.Workloads, cluster.Workload{Owner: owner, Replicas: 1, Ready: 1, Strategy: "RollingUpdate"})
	}
	return inv
}

func offers(minors ...string) []upgrade.Offer {
	var out []upgrade.Offer
	for _, m := range minors {
		out = append(out, upgrade.Offer{Minor: m, Status: "STANDARD_SUPPORT"})
	}
	return out
}

func world(blue, green *cluster.Inventory, shares ...state.Share) *plan.World {
	return &plan.World{At: at, Inventories: map[state.Side]*cluster.Inventory{state.Blue: blue, state.Green: green}, Traffic: shares,
		Offered: offers("1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35"), Raises: map[string][]upgrade.AddonRaise{}}
}

func share(blue, green int) state.Share {
	return state.Share{Target: "route53/api.shop.example.com", Blue: blue, Green: green}
}

func ids(p *state.Plan) string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.ID)
	}
	return strings.Join(out, " ")
}

func mustMake(t *testing.T, f *planfile.File, w *plan.World) *state.Plan {
	t.Helper()
	roles, err := plan.Decide(f, w, "")
	if err != nil {
		t.Fatal(err)
	}
	return plan.Make(f, w, roles, plan.Identity{Run: "r"})
}

func TestActiveIsReadFromTheWeights(t *testing.T) {
	tests := map[string]struct {
		traffic []state.Share
		want    state.Side
		exit    state.Exit
	}{
		"blue whole":         {[]state.Share{share(100, 0)}, state.Blue, 0},
		"green whole":        {[]state.Share{share(0, 1), share(0, 255)}, state.Green, 0},
		"split":              {[]state.Share{share(90, 10)}, "", state.ExitBlocked},
		"almost whole":       {[]state.Share{share(999, 1)}, "", state.ExitBlocked},
		"targets disagree":   {[]state.Share{share(100, 0), share(0, 100)}, "", state.ExitBlocked},
		"no weight anywhere": {[]state.Share{share(0, 0)}, "", state.ExitBlocked},
		"one without weight": {[]state.Share{share(100, 0), share(0, 0)}, "", state.ExitBlocked},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := plan.Active(tt.traffic, "")
			var stop *state.Stop
			if errors.As(err, &stop) != (tt.exit != 0) || got != tt.want {
				t.Fatalf("active %q, %v", got, err)
			}
			if stop != nil && (stop.Code != tt.exit || !strings.Contains(stop.Why, tt.traffic[0].Target) || stop.Cure == "") {
				t.Errorf("stop %+v", stop)
			}
			serves := slices.ContainsFunc(tt.traffic, func(s state.Share) bool { return s.Green > 0 })
			if got, err := plan.Active(tt.traffic, state.Green); (err == nil) != serves || serves && got != state.Green {
				t.Errorf("--active green gives %q, %v", got, err)
			}
		})
	}
}

func TestHotPairGoesUpHopByHopAndOver(t *testing.T) {
	w := world(inventory(state.Blue, "1.31", "1.31", "1.31"), inventory(state.Green, "1.31", "1.31", "1.31"), share(100, 0))
	w.Raises["1.32"] = []upgrade.AddonRaise{{Name: "kube-proxy", From: "v1.31.3-eksbuild.2", To: "v1.32.6-eksbuild.2", Before: true}}
	w.Raises["1.33"] = []upgrade.AddonRaise{{Name: "coredns", From: "v1.11.1-eksbuild.4", To: "v1.12.1-eksbuild.2"}}
	p := mustMake(t, file("1.33"), w)
	want := "preflight green/addon/kube-proxy/1.32 green/control-plane/1.32 green/control-plane/1.33 green/addon/coredns/1.33 " +
		"green/restart/1 green/capacity traffic/10 traffic/50 traffic/100"
	if got := ids(p); got != want {
		t.Errorf("steps\n got %s\nwant %s", got, want)
	}
	if p.Origin != state.Blue || p.Destination != state.Green {
		t.Errorf("origin %s, destination %s", p.Origin, p.Destination)
	}
	if s, _ := p.Step("green/restart/1"); s.To != "1.33" || !strings.Contains(s.Title, "2 pods of 2 owners") {
		t.Errorf("restart %+v", s)
	}
	if s, _ := p.Step("traffic/50"); s.FromPercent != 10 || s.Percent != 50 {
		t.Errorf("stage %+v", s)
	}
}

func TestRestartComesBeforeAHopThatTheSkewForbids(t *testing.T) {
	// 1.31 kubelets may serve under 1.34 and not under 1.35.
	w := world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.31", "1.31"), share(1, 0))
	got := ids(mustMake(t, file("1.35"), w))
	want := "preflight green/control-plane/1.32 green/control-plane/1.33 green/control-plane/1.34 green/restart/before-1.35 " +
		"green/control-plane/1.35 green/restart/1 green/capacity traffic/10 traffic/50 traffic/100"
	if got != want {
		t.Errorf("steps\n got %s\nwant %s", got, want)
	}
}

func TestGoalStates(t *testing.T) {
	lagging := inventory(state.Blue, "1.33", "1.32", "1.33")
	tests := map[string]struct {
		world *plan.World
		want  string
	}{
		"active at the target, nothing lags": {world(inventory(state.Blue, "1.33", "1.33"), inventory(state.Green, "1.31", "1.31"), share(100, 0)), ""},
		"active at the target, pods lag":     {world(lagging, inventory(state.Green, "1.33", "1.33"), share(100, 0)), "preflight blue/restart-live/1"},
		"standby there, nothing lags":        {world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.33", "1.33"), share(100, 0)), "preflight green/capacity traffic/10 traffic/50 traffic/100"},
		"standby there, pods lag":            {world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.33", "1.32"), share(100, 0)), "preflight green/restart/1 green/capacity traffic/10 traffic/50 traffic/100"},
		"the other way round":                {world(inventory(state.Blue, "1.32", "1.32"), inventory(state.Green, "1.32", "1.32"), share(0, 100)), "preflight blue/control-plane/1.33 blue/restart/1 blue/capacity traffic/10 traffic/50 traffic/100"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := mustMake(t, file("1.33"), tt.world)
			if got := ids(p); got != tt.want {
				t.Errorf("steps\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Semantics 12: without a journal the present weight is held and gated first.
func TestSplitTrafficGoesOnFromTheShareThatIsThere(t *testing.T) {
	for name, tt := range map[string]struct {
		traffic []state.Share
		want    string
	}{
		"at a stage":       {[]state.Share{share(50, 50)}, "preflight green/capacity traffic/50 traffic/100"},
		"between stages":   {[]state.Share{share(70, 30)}, "preflight green/capacity traffic/30 traffic/50 traffic/100"},
		"targets disagree": {[]state.Share{share(90, 10), share(50, 50)}, "preflight green/capacity traffic/10 traffic/50 traffic/100"},
		"not begun on one": {[]state.Share{share(100, 0), share(90, 10)}, "preflight green/capacity traffic/10 traffic/50 traffic/100"},
	} {
		t.Run(name, func(t *testing.T) {
			f, w := file("1.33"), world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.33", "1.33"), tt.traffic...)
			roles, err := plan.Decide(f, w, state.Blue)
			if err != nil {
				t.Fatal(err)
			}
			p := plan.Make(f, w, roles, plan.Identity{Run: "r"})
			if got := ids(p); got != tt.want {
				t.Errorf("steps\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Semantics 22: whatever its part in the run, a side that gets traffic is restarted
// only when that is approved by name.
func TestTheRestartOfASideWithTrafficIsLive(t *testing.T) {
	f, w := file("1.33"), world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.32", "1.32"), share(50, 50))
	roles, err := plan.Decide(f, w, state.Blue)
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Make(f, w, roles, plan.Identity{Run: "r"})
	s, ok := p.Step("green/restart/1")
	if !ok || s.Phase != state.PhaseRestartLive || !s.Approval {
		t.Errorf("restart %+v in %s", s, ids(p))
	}
	if !slices.ContainsFunc(p.Findings, func(f state.Finding) bool { return f.Check == "upgrade/live" }) {
		t.Errorf("nothing says that green gets traffic: %+v", p.Findings)
	}
}

// Split traffic is never "served whole", whoever is named.
func TestASplitIsNotServedWhole(t *testing.T) {
	w := world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.33", "1.33"), share(50, 50))
	_, err := plan.Decide(file("1.33"), w, state.Green)
	var stop *state.Stop
	if !errors.As(err, &stop) || stop.Code != state.ExitBlocked || !strings.Contains(stop.Cure, "--active blue") {
		t.Errorf("got %v", err)
	}
}

func TestAcceptancesThatAreOverAreTold(t *testing.T) {
	f := file("1.32")
	f.Waive = []planfile.Waiver{{Check: "insight/x", Reason: "r", Until: planfile.Date{Time: at.AddDate(0, 0, -2)}}}
	f.Restart.Skip = []planfile.Skip{{Owner: "shop/Job/x", Reason: "r", Until: planfile.Date{Time: at.AddDate(0, 0, -2)}}}
	p := mustMake(t, f, world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.31", "1.31"), share(100, 0)))
	for _, check := range []string{"waive/insight/x", "skip/shop/Job/x"} {
		if !slices.ContainsFunc(p.Findings, func(f state.Finding) bool { return f.Check == check && !f.Blocks() }) {
			t.Errorf("%s is not told: %+v", check, p.Findings)
		}
	}
}

func TestLiveRestartIsMarkedForApproval(t *testing.T) {
	p := mustMake(t, file("1.33"), world(inventory(state.Blue, "1.33", "1.32"), inventory(state.Green, "1.33"), share(100, 0)))
	s, ok := p.Step("blue/restart-live/1")
	if !ok || s.Phase != state.PhaseRestartLive || !s.Approval {
		t.Errorf("live restart %+v", s)
	}
}

func TestTargetsThatCannotBeReachedNameTheCure(t *testing.T) {
	tests := map[string]struct {
		version     string
		blue, green string
		offered     []upgrade.Offer
		says        []string
	}{
		"below the active":  {"1.30", "1.31", "1.31", nil, []string{"below", "shop-blue", "1.31"}},
		"below the standby": {"1.32", "1.31", "1.33", nil, []string{"below", "shop-green", "1.33"}},
		"not offered":       {"1.36", "1.35", "1.35", nil, []string{"1.36", "1.35"}},
		"a hole on the way": {"1.33", "1.31", "1.31", offers("1.31", "1.33"), []string{"1.32"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(inventory(state.Blue, tt.blue), inventory(state.Green, tt.green), share(100, 0))
			if tt.offered != nil {
				w.Offered = tt.offered
			}
			_, err := plan.Decide(file(tt.version), w, "")
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

func TestApprovalsMarkTheFirstStepOfTheirPhase(t *testing.T) {
	f := file("1.32")
	f.Approvals = []string{"cutover", "upgrade"}
	p := mustMake(t, f, world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.31", "1.31"), share(100, 0)))
	var marked []string
	for _, s := range p.Steps {
		if s.Approval {
			marked = append(marked, s.ID)
		}
	}
	if got := strings.Join(marked, " "); got != "green/control-plane/1.32 traffic/10" {
		t.Errorf("marked %s", got)
	}
}

func TestWhatCannotBeRestartedIsInThePlan(t *testing.T) {
	green := inventory(state.Green, "1.31", "1.31")
	green.Pods[0].Owner = cluster.Owner{APIVersion: "v1", Namespace: "shop", Kind: "Pod", Name: "toolbox"}
	p := mustMake(t, file("1.32"), world(inventory(state.Blue, "1.31", "1.31"), green, share(100, 0)))
	i := slices.IndexFunc(p.Findings, func(f state.Finding) bool { return f.Check == "restart/shop/Pod/toolbox" })
	if i < 0 || p.Findings[i].Cure == "" || p.Findings[i].Step != "green/restart/1" {
		t.Errorf("findings %+v", p.Findings)
	}
}

func TestFingerprint(t *testing.T) {
	build := func(change func(*planfile.File, *plan.World)) string {
		f, w := file("1.32"), world(inventory(state.Blue, "1.31", "1.31"), inventory(state.Green, "1.31", "1.31"), share(100, 0))
		if change != nil {
			change(f, w)
		}
		return mustMake(t, f, w).Fingerprint
	}
	base := build(nil)
	if again := build(func(_ *planfile.File, w *plan.World) { w.At = at.Add(time.Hour) }); again != base {
		t.Error("the fingerprint changes with the time of day alone")
	}
	for name, change := range map[string]func(*planfile.File, *plan.World){
		"another version": func(_ *planfile.File, w *plan.World) { w.Inventories[state.Green].Version = "1.30" },
		"other weights":   func(_ *planfile.File, w *plan.World) { w.Traffic[0].Blue = 50 },
		"another cluster": func(_ *planfile.File, w *plan.World) { w.Inventories[state.Green].CreatedAt = at },
		"other stages":    func(f *planfile.File, _ *plan.World) { f.Cutover.Stages = []int{100} },
		"a finding": func(_ *planfile.File, w *plan.World) {
			w.Findings = []state.Finding{{Check: "x", Severity: state.SeverityWarn}}
		},
		"an add-on's need": func(_ *planfile.File, w *plan.World) {
			w.Raises["1.32"] = []upgrade.AddonRaise{{Name: "coredns", To: "v2"}}
		},
	} {
		if build(change) == base {
			t.Errorf("%s does not change the fingerprint", name)
		}
	}
}

// Whatever the world, a plan's hops rise one by one to the target, no kubelet is
// left outside the skew, the traffic rises to 100, and step ids are unique.
func TestPlansHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minor := rapid.IntRange(26, 33)
		green := minor.Draw(t, "standby")
		blue := rapid.IntRange(26, green).Draw(t, "active")
		target := rapid.IntRange(green, 35).Draw(t, "target")
		kubelet := rapid.IntRange(max(26, green-2), green).Draw(t, "kubelet")
		v := func(n int) string { return fmt.Sprintf("1.%d", n) }
		w := world(inventory(state.Blue, v(blue), v(blue)), inventory(state.Green, v(green), v(kubelet)), share(100, 0))
		w.Offered = offers("1.26", "1.27", "1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35")
		f := file(v(target))
		roles, err := plan.Decide(f, w, "")
		if err != nil {
			t.Fatal(err)
		}
		p := plan.Make(f, w, roles, plan.Identity{Run: "r"})
		seen := map[string]bool{}
		at, kube, traffic := green, kubelet, 0
		for _, s := range p.Steps {
			if seen[s.ID] {
				t.Fatalf("step id %s twice", s.ID)
			}
			seen[s.ID] = true
			switch s.Kind {
			case state.KindControlPlane:
				if s.From != v(at) || s.To != v(at+1) {
					t.Fatalf("hop %s to %s at 1.%d", s.From, s.To, at)
				}
				at++
				if at-kube > 3 {
					t.Fatalf("kubelet 1.%d under 1.%d", kube, at)
				}
			case state.KindRestart:
				if s.To != v(at) {
					t.Fatalf("restart to %s at 1.%d", s.To, at)
				}
				kube = at
			case state.KindTraffic:
				if s.FromPercent != traffic || s.Percent <= traffic || at != target || kube != at {
					t.Fatalf("stage %+v at 1.%d with kubelets 1.%d", s, at, kube)
				}
				traffic = s.Percent
			}
		}
		if blue == target {
			if len(p.Steps) != 0 {
				t.Fatalf("active is at the target: %s", ids(p))
			}
		} else if traffic != 100 {
			t.Fatalf("ends with %d %%: %s", traffic, ids(p))
		}
	})
}
