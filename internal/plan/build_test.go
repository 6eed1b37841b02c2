package plan_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/state"
)

// journal holds the records of a run in memory.
type journal struct {
	state.Recorder
	records []state.Record
}

func (j *journal) Records(step string) []state.Record {
	return slices.DeleteFunc(slices.Clone(j.records), func(r state.Record) bool { return step != "" && r.Step != step })
}

func (j *journal) Record(r state.Record) error { j.records = append(j.records, r); return nil }

func (j *journal) Waiting(string) {}

func (j *journal) Intent(string, string, any, any) (int64, error) { return 1, nil }

func (j *journal) Outcome(int64, state.Result, string, any) error { return nil }

// reached is an API server that a step reaches.
type reached struct {
	plan.Cluster
	kube kubernetes.Interface
}

func (r reached) Kubernetes() kubernetes.Interface { return r.kube }

// built is a run with its builder; lists counts how often each cluster was listed.
type built struct {
	*plan.Builder
	j     *journal
	lists map[state.Side]int
}

// building is the builder of the run of a plan, which was begun by arn.
func building(f *planfile.File, w *plan.World, p *state.Plan, arn string, open func(context.Context, state.Side) (kubernetes.Interface, error)) *built {
	p.FileSum = "sum"
	b := &built{j: &journal{records: []state.Record{{Kind: state.RecordPlan, Plan: p, Who: &state.Who{ARN: arn}}}}, lists: map[state.Side]int{}}
	clk := clocktesting.NewFakeClock(at)
	read := map[state.Side]preflight.Inventory{}
	for _, side := range state.Sides {
		read[side] = func(context.Context) (*cluster.Inventory, error) {
			b.lists[side]++
			return w.Inventories[side], nil
		}
	}
	b.Builder = &plan.Builder{File: f, FileSum: "sum", Plan: p, History: b.j,
		Sources: plan.Sources{Inventories: read, Looks: plan.NewLooks(clk, read), Clock: clk},
		Open: func(ctx context.Context, side state.Side) (plan.Cluster, error) {
			k, err := open(ctx, side)
			return reached{kube: k}, err
		}}
	return b
}

// What a step changes in a cluster ends the handing on of what was read before: nothing is
// left to go by while it is at work.
func TestAStepOfARunEndsTheHandingOnOfLooks(t *testing.T) {
	f := file("1.32")
	green := inventory(state.Green, "1.32", "1.32")
	withJobs(green, 1)
	w := world(inventory(state.Blue, "1.32"), green, share(100, 0))
	p := plan.Jobs(f, w, state.Green, plan.Identity{})
	k := fake.NewClientset()
	b := building(f, w, p, "", func(context.Context, state.Side) (kubernetes.Interface, error) { return k, nil })
	stop := errors.New("seen enough")
	deleted := 0
	k.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if !strings.HasPrefix(a.GetVerb(), "delete") {
			return false, nil, nil
		}
		deleted++
		for _, side := range state.Sides {
			if b.Looks.Recent(side)() != nil {
				t.Errorf("what was read of %s before a deletion is handed on after it", side)
			}
		}
		return true, nil, stop
	})
	step, err := b.Build(t.Context(), p.Steps[len(p.Steps)-1])
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range state.Sides {
		if _, err := b.Looks.Glance(side)(t.Context()); err != nil || b.Looks.Recent(side)() == nil {
			t.Fatalf("%s was not read, %v", side, err)
		}
	}
	err = step.Act(t.Context(), b.j)
	if deleted == 0 {
		t.Errorf("nothing was deleted: %v", err)
	}
}

// resumedBy goes on with a run whose preflight has passed, as arn.
func (b *built) resumedBy(arn string) {
	b.j.records = append(b.j.records, state.Record{Kind: state.RecordDone, Step: "preflight"}, state.Record{Kind: state.RecordResumed, Who: &state.Who{ARN: arn}})
}

// Access is asked about again where the answer may be another one than when the run began:
// for what is left, before anything is changed.
func TestAccessIsAskedAgainOnResume(t *testing.T) {
	recreate := func(b *built) {
		b.File.Restart.Allow = []planfile.Allow{{Owner: "ops/Pod/shell", Action: planfile.ActionRecreate, Reason: "agreed"}}
		b.FileSum = "another"
	}
	for name, tt := range map[string]struct {
		change func(*built)
		denies string
		// stops names what is denied; asks tells whether anything is asked.
		stops string
		asks  bool
	}{
		"nothing changed":                       {func(b *built) { b.resumedBy("arn:me") }, "deployments", "", false},
		"nobody knows who calls":                {func(b *built) { b.j.records[0].Who = nil; b.resumedBy("") }, "deployments", "", false},
		"somebody else, who may":                {func(b *built) { b.resumedBy("arn:you") }, "namespaces", "", true},
		"somebody else, who may not":            {func(b *built) { b.resumedBy("arn:you") }, "deployments", "access/patch/deployments.apps", true},
		"the plan file allows more":             {func(b *built) { recreate(b); b.resumedBy("arn:me") }, "create pods/", "access/create/pods", true},
		"nothing is left that needs any":        {func(b *built) { recreate(b); b.resumedBy("arn:you"); b.done("green/restart/1") }, "deployments", "", false},
		"an eksbg that wrote nothing down":      {func(b *built) { b.Plan.Access = nil; b.resumedBy("arn:you") }, "deployments", "", false},
		"what is under way, by the plan as was": {func(b *built) { b.File.Restart.Skip = skipsAll(); b.FileSum = "another"; b.resumedBy("arn:me") }, "deployments", "access/patch/deployments.apps", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := file("1.32")
			w := world(inventory(state.Blue, "1.32"), lagging(owns("apps/v1", "shop", "Deployment", "cart", 2), owns("v1", "ops", "Pod", "shell", 1)), share(100, 0))
			p := plan.Restart(f, w, state.Green, plan.Identity{})
			open, asked := apiServers(tt.denies)
			b := building(f, w, p, "arn:me", open)
			tt.change(b)
			why := b.again(t)
			if (*asked > 0) != tt.asks || (why == "") != (tt.stops == "") || !strings.Contains(why, tt.stops) {
				t.Errorf("asked %d times, stopped: %s", *asked, why)
			}
			if lists := maps.Clone(b.lists); tt.asks && (lists[state.Green] != 1 || lists[state.Blue] != 0) || !tt.asks && len(lists) > 0 {
				t.Errorf("listed %v", lists)
			}
			if tt.stops != "" || !tt.asks {
				return
			}
			b.resumedBy("arn:you")
			if before := *asked; b.again(t) != "" || *asked != before {
				t.Error("the same caller was asked about twice")
			}
		})
	}
}

// A run whose preflight has not passed yet needs what the plan file says now, no more: who
// takes something out of it since it is denied is not asked about it again.
func TestAccessOfARunThatHasNotBegunIsByThePlanFile(t *testing.T) {
	for sum, stops := range map[string]bool{"sum": true, "another": false} {
		f := file("1.32")
		f.Restart.Allow = []planfile.Allow{{Owner: "ops/Pod/shell", Action: planfile.ActionRecreate, Reason: "agreed"}}
		w := world(inventory(state.Blue, "1.32"), lagging(owns("apps/v1", "shop", "Deployment", "cart", 2), owns("v1", "ops", "Pod", "shell", 1)), share(100, 0))
		open, asked := apiServers("podtemplates")
		b := building(f, w, plan.Restart(f, w, state.Green, plan.Identity{}), "arn:me", open)
		b.CredentialsExpire = func(context.Context) (time.Time, error) { return time.Time{}, nil }
		f.Restart.Allow, b.FileSum = nil, sum
		if why := b.again(t); strings.Contains(why, "access/create/podtemplates") != stops || (why != "") != stops || *asked == 0 {
			t.Errorf("plan file %s: asked %d times, stopped: %s", sum, *asked, why)
		}
	}
}

func skipsAll() []planfile.Skip {
	day := planfile.Date{Time: at.AddDate(0, 0, 1)}
	return []planfile.Skip{{Owner: "shop/Deployment/cart", Reason: "later", Until: day}, {Owner: "ops/Pod/shell", Reason: "later", Until: day}}
}

func (b *built) done(step string) {
	b.j.records = append(b.j.records, state.Record{Kind: state.RecordDone, Step: step})
}

// again looks at the preflight of a run that goes on, and gives what it stops with.
func (b *built) again(t *testing.T) string {
	t.Helper()
	step, err := b.Build(t.Context(), b.Plan.Steps[0])
	if err != nil {
		t.Fatal(err)
	}
	obs, err := step.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if obs.Status == state.Done {
		return ""
	}
	var stop *state.Stop
	if err := step.Act(t.Context(), b.j); errors.As(err, &stop) && stop.Code == state.ExitBlocked {
		return stop.Why
	} else if err != nil {
		t.Fatal(err)
	}
	return ""
}
