package preflight_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/state"
)

var at = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// log is a journal of one step in memory.
type log struct{ records []state.Record }

func (l *log) Records(string) []state.Record { return l.records }

func (l *log) Record(r state.Record) error { l.records = append(l.records, r); return nil }

func (l *log) Waiting(string) {}

func (l *log) Intent(string, string, any, any) (int64, error) {
	return 0, errors.New("a preflight changes nothing")
}

func (l *log) Outcome(int64, state.Result, string, any) error {
	return errors.New("a preflight changes nothing")
}

func finding(check string, s state.Severity) state.Finding {
	return state.Finding{Check: check, Severity: s, Text: "text of " + check, Cure: "cure of " + check}
}

func found(fs ...state.Finding) preflight.Check {
	return preflight.Check{Name: "a check", Run: func(context.Context) ([]state.Finding, error) { return fs, nil }}
}

func act(t *testing.T, d preflight.Deps) (*preflight.Preflight, *log, error) {
	t.Helper()
	l := &log{}
	d.History = l
	p := preflight.New(state.StepSpec{ID: "preflight"}, d)
	return p, l, p.Act(t.Context(), l)
}

func TestFindingsThatBlock(t *testing.T) {
	waive := func(fs []state.Finding) []state.Finding {
		for i := range fs {
			if fs[i].Check == "waived" {
				fs[i].Waived = "a reason"
			}
		}
		return fs
	}
	cured := func(f state.Finding) string {
		if f.Check == "cured" {
			return "green/restart/1"
		}
		return ""
	}
	tests := map[string]struct {
		finding state.Finding
		blocks  bool
	}{
		"an error":                  {finding("e", state.SeverityError), true},
		"an unknown is no pass":     {finding("u", state.SeverityUnknown), true},
		"a warning":                 {finding("w", state.SeverityWarn), false},
		"information":               {finding("i", state.SeverityInfo), false},
		"an error that is waived":   {finding("waived", state.SeverityError), false},
		"an error that is cured":    {finding("cured", state.SeverityError), false},
		"an unknown that is waived": {finding("waived", state.SeverityUnknown), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, l, err := act(t, preflight.Deps{Checks: []preflight.Check{found(), found(tt.finding)}, Waive: waive, Cured: cured})
			var stop *state.Stop
			if errors.As(err, &stop) != tt.blocks {
				t.Fatalf("blocks: %v, want %v", err, tt.blocks)
			}
			if len(l.records) != 1 || !strings.Contains(l.records[0].Text, tt.finding.Text) {
				t.Errorf("records %+v", l.records)
			}
			obs, err := p.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.blocks {
				if stop.Code != state.ExitBlocked || !strings.Contains(stop.Cure, tt.finding.Cure) || !strings.Contains(stop.Cure, "waive") {
					t.Errorf("stop %+v", stop)
				}
				if obs.Status != state.Ready {
					t.Errorf("observed %s after a block", obs.Status)
				}
			} else if obs.Status != state.Done {
				t.Errorf("observed %s after a pass", obs.Status)
			}
		})
	}
}

// How to accept a finding is said once, by the finding where it says so itself.
func TestTheWaiverIsSaidOnce(t *testing.T) {
	own := finding("own", state.SeverityError)
	own.Cure = "mend it, or waive {check: own}"
	for want, fs := range map[string][]state.Finding{
		own.Cure: {own},
		own.Cure + "\ncure of e\nor accept one by name under waive: in the plan file, with a reason and an end": {own, {Check: "e", Severity: state.SeverityError, Cure: "cure of e"}},
	} {
		_, _, err := act(t, preflight.Deps{Checks: []preflight.Check{found(fs...)}})
		var stop *state.Stop
		if !errors.As(err, &stop) || stop.Cure != want {
			t.Errorf("got %v, want cure %q", err, want)
		}
	}
}

// What has passed in a run is looked at again only where something asks for it, and then
// that alone; what blocks then is not forgotten either.
func TestChecksThatAreMadeAgain(t *testing.T) {
	passed := []state.Record{{Kind: state.RecordDone, Step: "preflight"}}
	once := preflight.Check{Name: "once", Run: func(context.Context) ([]state.Finding, error) {
		t.Error("a check that has passed was made again")
		return nil, nil
	}}
	for name, tt := range map[string]struct {
		why    string
		finds  []state.Finding
		err    error
		status state.Status
		blocks bool
	}{
		"nothing asks for it": {"", nil, nil, state.Done, false},
		"it passes":           {"somebody else calls", nil, nil, state.Ready, false},
		"it blocks":           {"somebody else calls", []state.Finding{finding("denied", state.SeverityError)}, nil, state.Ready, true},
		"not to be found out": {"", nil, errors.New("away"), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{records: passed}
			p := preflight.New(state.StepSpec{ID: "preflight"}, preflight.Deps{Checks: []preflight.Check{once}, History: l,
				Again: func(context.Context) (string, []preflight.Check, error) {
					return tt.why, []preflight.Check{found(tt.finds...)}, tt.err
				}})
			obs, err := p.Observe(t.Context())
			if !errors.Is(err, tt.err) || obs.Status != tt.status {
				t.Fatalf("observed %q, %v", obs.Status, err)
			}
			if obs.Status != state.Ready {
				return
			}
			err = p.Act(t.Context(), l)
			if (err != nil) != tt.blocks || l.records[1].Text != tt.why {
				t.Errorf("%v, records %+v", err, l.records)
			}
			if obs, err = p.Observe(t.Context()); err != nil || (obs.Status == state.Done) == tt.blocks {
				t.Errorf("observed %s afterwards, %v", obs.Status, err)
			}
		})
	}
}

func TestACheckThatCannotBeMadeFailsTheStep(t *testing.T) {
	broken := preflight.Check{Name: "the weather", Run: func(context.Context) ([]state.Finding, error) { return nil, errors.New("no window") }}
	_, _, err := act(t, preflight.Deps{Checks: []preflight.Check{broken}})
	var stop *state.Stop
	if err == nil || errors.As(err, &stop) || !strings.Contains(err.Error(), "the weather") {
		t.Errorf("error %v", err)
	}
}

// On resume it is done: later steps look again at what concerns them.
func TestDoneOnceInARun(t *testing.T) {
	l := &log{records: []state.Record{{Kind: state.RecordDone, Step: "preflight"}}}
	obs, err := preflight.New(state.StepSpec{ID: "preflight"}, preflight.Deps{History: l}).Observe(t.Context())
	if err != nil || obs.Status != state.Done {
		t.Errorf("observed %+v, %v", obs, err)
	}
}

func view(name string) state.ClusterView {
	return state.ClusterView{Name: name, ARN: "arn:aws:eks:eu-west-1:111122223333:cluster/" + name, CreatedAt: at}
}

func inventories(change func(*cluster.Inventory)) map[state.Side]preflight.Inventory {
	out := map[state.Side]preflight.Inventory{}
	for _, side := range state.Sides {
		v := view(string(side))
		inv := &cluster.Inventory{Name: v.Name, ARN: v.ARN, CreatedAt: v.CreatedAt, Status: "ACTIVE"}
		if side == state.Green && change != nil {
			change(inv)
		}
		out[side] = func(context.Context) (*cluster.Inventory, error) { return inv, nil }
	}
	return out
}

func TestIdentity(t *testing.T) {
	plan := &state.Plan{Clusters: map[state.Side]state.ClusterView{state.Blue: view("blue"), state.Green: view("green")}}
	tests := map[string]struct {
		change func(*cluster.Inventory)
		check  string
		want   state.Severity
	}{
		"as planned":           {nil, "", ""},
		"another cluster":      {func(i *cluster.Inventory) { i.ARN += "x" }, "cluster/identity", state.SeverityError},
		"made anew, same name": {func(i *cluster.Inventory) { i.CreatedAt = at.Add(time.Hour) }, "cluster/identity", state.SeverityError},
		"being updated":        {func(i *cluster.Inventory) { i.Status = "UPDATING" }, "cluster/status", state.SeverityWarn},
		"failed":               {func(i *cluster.Inventory) { i.Status = "FAILED" }, "cluster/status", state.SeverityError},
		"somebody else's update": {func(i *cluster.Inventory) {
			i.Updates = []cluster.Update{{ID: "u1", Type: "LoggingUpdate", CreatedAt: at}}
		}, "cluster/update", state.SeverityWarn},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fs, err := preflight.Identity(plan, inventories(tt.change)).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.check == "" && len(fs) > 0:
				t.Errorf("found %+v", fs)
			case tt.check != "" && (len(fs) != 1 || fs[0].Check != tt.check || fs[0].Severity != tt.want || fs[0].Side != state.Green):
				b, _ := json.Marshal(fs)
				t.Errorf("found %s", b)
			}
		})
	}
}

func TestIdentityOfAClusterThatCannotBeRead(t *testing.T) {
	plan := &state.Plan{Clusters: map[state.Side]state.ClusterView{state.Blue: view("blue"), state.Green: view("green")}}
	invs := inventories(nil)
	invs[state.Green] = func(context.Context) (*cluster.Inventory, error) { return nil, errors.New("denied") }
	if _, err := preflight.Identity(plan, invs).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "green") {
		t.Errorf("error %v", err)
	}
}

func TestCredentials(t *testing.T) {
	plan := &state.Plan{Steps: []state.StepSpec{{Expect: state.Expect{Max: state.Duration(time.Hour)}}, {Expect: state.Expect{Max: state.Duration(30 * time.Minute)}}}}
	for name, tt := range map[string]struct {
		at   time.Time
		warn bool
	}{
		"never end": {time.Time{}, false},
		"long":      {at.Add(2 * time.Hour), false},
		"just":      {at.Add(90 * time.Minute), false},
		"too short": {at.Add(89 * time.Minute), true},
		"over":      {at.Add(-time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			fs, err := preflight.Credentials(plan, func() time.Time { return at }, func(context.Context) (time.Time, error) { return tt.at, nil }).Run(t.Context())
			if err != nil || len(fs) > 0 != tt.warn {
				t.Errorf("found %+v, %v", fs, err)
			}
			if tt.warn && fs[0].Blocks() {
				t.Error("short credentials block; they only warn")
			}
		})
	}
}
