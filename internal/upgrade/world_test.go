package upgrade_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

func p[T any](v T) *T { return &v }

// steppingClock is a fake clock that goes on by itself as soon as somebody waits.
type steppingClock struct{ *clocktesting.FakeClock }

func (c steppingClock) NewTimer(d time.Duration) clock.Timer {
	t := c.FakeClock.NewTimer(d)
	c.Step(d)
	return t
}

// journal is a Recorder and History in memory. Details go through JSON, as they do
// in the real one.
type journal struct {
	now     func() time.Time
	step    string
	records []state.Record
	waits   []string
	// onWait, if set, is called with what is waited for.
	onWait func(string)
	// crash, if set, may fail a write before it or after it was made.
	crash func(what string) error
}

func (j *journal) add(r state.Record) (int64, error) {
	if err := j.fail("write " + string(r.Kind)); err != nil {
		return 0, err
	}
	r.Seq, r.Time = int64(len(j.records)+1), j.now()
	if r.Step == "" {
		r.Step = j.step
	}
	j.records = append(j.records, r)
	return r.Seq, j.fail("wrote " + string(r.Kind))
}

func (j *journal) fail(what string) error {
	if j.crash == nil {
		return nil
	}
	return j.crash(what)
}

func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (j *journal) Intent(call, object string, detail, undo any) (int64, error) {
	return j.add(state.Record{Kind: state.RecordIntent, Change: &state.Change{Call: call, Object: object, Detail: raw(detail), Undo: raw(undo)}})
}

func (j *journal) Outcome(intent int64, result state.Result, text string, detail any) error {
	_, err := j.add(state.Record{Kind: state.RecordOutcome, Intent: intent, Result: result, Text: text, Detail: raw(detail)})
	return err
}

func (j *journal) Record(r state.Record) error { _, err := j.add(r); return err }

func (j *journal) Waiting(text string) {
	j.waits = append(j.waits, text)
	if j.onWait != nil {
		j.onWait(text)
	}
}

func (j *journal) Records(step string) []state.Record {
	var out []state.Record
	for _, r := range j.records {
		if step == "" || r.Step == step {
			out = append(out, r)
		}
	}
	return out
}

// story is the journal in short: "intent 1", "accepted u-1", "succeeded u-1".
func (j *journal) story() []string {
	var out []string
	for _, r := range j.records {
		switch r.Kind {
		case state.RecordIntent:
			var d struct {
				Attempt int `json:"attempt"`
			}
			_ = json.Unmarshal(r.Change.Detail, &d)
			out = append(out, fmt.Sprintf("intent %d", d.Attempt))
		case state.RecordOutcome:
			var d struct {
				UpdateID string `json:"updateId"`
			}
			_ = json.Unmarshal(r.Detail, &d)
			out = append(out, strings.TrimSpace(string(r.Result)+" "+d.UpdateID))
		case state.RecordNote:
			out = append(out, "note")
		}
	}
	return out
}

// persisted tells whether an intent holds the token.
func (j *journal) persisted(token string) bool {
	for _, r := range j.records {
		if r.Kind == state.RecordIntent && strings.Contains(string(r.Change.Detail), `"token":"`+token+`"`) {
			return len(token) == 36
		}
	}
	return false
}

// update is one update in the world, which ends by the clock.
type update struct {
	id, typ, to string
	created     time.Time
	takes       time.Duration
	ends        ekstypes.UpdateStatus
	running     ekstypes.UpdateStatus
	errors      []ekstypes.ErrorDetail
}

// world is EKS and the API server of one cluster, moved by the clock.
type world struct {
	clk     steppingClock
	j       *journal
	version string
	status  ekstypes.ClusterStatus
	updates []*update
	// stale is how long after the end of an update the old version is shown, slow how
	// much longer the API server answers the old minor.
	stale, slow time.Duration
	// takes, ends and errors are for the updates that requests start.
	takes  time.Duration
	ends   ekstypes.UpdateStatus
	errors []ekstypes.ErrorDetail
	// refusals answer one request after another; nil entries let it through.
	refusals []error
	tokens   map[string]*update

	addon    *ekstypes.Addon
	addonsAt map[string][]ekstypes.AddonVersionInfo
	insights []ekstypes.InsightSummary
	refresh  []ekstypes.InsightsRefreshStatus
	offered  []ekstypes.ClusterVersionInformation
	fail     map[string]error

	calls  []string
	inputs []any
	// unguarded collects changing calls without a persisted token.
	unguarded []string
	crash     func(what string) error
}

var start = time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)

func newWorld() *world {
	w := &world{
		clk: steppingClock{clocktesting.NewFakeClock(start)}, version: "1.31", status: ekstypes.ClusterStatusActive,
		takes: 9 * time.Minute, ends: ekstypes.UpdateStatusSuccessful, stale: time.Minute, slow: time.Minute,
		tokens: map[string]*update{}, fail: map[string]error{}, addonsAt: map[string][]ekstypes.AddonVersionInfo{},
	}
	w.j = &journal{now: w.clk.Now}
	return w
}

// deps are those of a step in this world; no finding speaks against a hop.
func (w *world) deps() upgrade.Deps {
	return upgrade.Deps{
		EKS: w, Server: w, Clock: w.clk, History: w.j, Polling: 30 * time.Second, Cluster: "shop-green", Side: state.Green,
		Check:  func(context.Context, string) ([]state.Finding, error) { return nil, nil },
		Random: func() float64 { return 0.5 },
	}
}

func spec() state.StepSpec {
	return state.StepSpec{ID: "green/control-plane/1.32", Kind: state.KindControlPlane, Side: state.Green, From: "1.31", To: "1.32",
		Expect: state.Expect{Min: state.Duration(8 * time.Minute), Max: state.Duration(12 * time.Minute)}}
}

// step makes the step anew, as a process that starts again does.
func (w *world) step(change ...func(*upgrade.Deps)) *upgrade.ControlPlane {
	d := w.deps()
	for _, c := range change {
		c(&d)
	}
	w.j.step = spec().ID
	return upgrade.NewControlPlane(spec(), d)
}

// start begins an update that nobody's request here asked for.
func (w *world) start(typ, to string, takes time.Duration, ends ekstypes.UpdateStatus) *update {
	u := &update{id: fmt.Sprintf("u-%07d", len(w.updates)+1), typ: typ, to: to, created: w.clk.Now(), takes: takes, ends: ends, running: ekstypes.UpdateStatusInProgress}
	w.updates = append(w.updates, u)
	return u
}

func (w *world) over(u *update, more time.Duration) bool {
	return !w.clk.Now().Before(u.created.Add(u.takes + more))
}

// shown is the version that EKS (extra 0) or the API server shows now.
func (w *world) shown(extra time.Duration) string {
	v := w.version
	for _, u := range w.updates {
		if u.typ == "VersionUpdate" && u.ends == ekstypes.UpdateStatusSuccessful && w.over(u, w.stale+extra) && cluster.CompareMinor(u.to, v) > 0 {
			v = u.to
		}
	}
	return v
}

func (w *world) busy(typ string) *update {
	for _, u := range w.updates {
		if !w.over(u, 0) && (u.typ == "AddonUpdate") == (typ == "AddonUpdate") {
			return u
		}
	}
	return nil
}

// call counts a call and lets it fail, before or after its effect.
func (w *world) call(name string) error {
	w.calls = append(w.calls, name)
	if w.crash != nil {
		if err := w.crash("call " + name); err != nil {
			return err
		}
	}
	return w.fail[name]
}

func (w *world) answer(name string) error {
	if w.crash != nil {
		return w.crash("called " + name)
	}
	return nil
}

func (w *world) count(name string) int {
	n := 0
	for _, c := range w.calls {
		if c == name {
			n++
		}
	}
	return n
}

func (w *world) ServerVersion(context.Context) (string, string, error) {
	if err := w.call("/version"); err != nil {
		return "", "", err
	}
	v := w.shown(w.slow)
	return v, "v" + v + ".2-eks-1a2b3c4", nil
}

func (w *world) DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error) {
	if err := w.call("DescribeCluster"); err != nil {
		return nil, err
	}
	c := &ekstypes.Cluster{Name: p("shop-green"), Version: p(w.shown(0)), Status: w.status}
	// The status follows an update with the same delay as the version.
	for _, u := range w.updates {
		if u.typ != "AddonUpdate" && w.clk.Now().After(u.created.Add(w.stale/2)) && !w.over(u, w.stale/2) {
			c.Status = ekstypes.ClusterStatusUpdating
		}
	}
	return &eks.DescribeClusterOutput{Cluster: c}, nil
}

func (w *world) accept(typ, to, token string) (*ekstypes.Update, error) {
	if !w.j.persisted(token) {
		w.unguarded = append(w.unguarded, typ+" "+token)
	}
	if u := w.tokens[token]; u != nil {
		return w.state(u), nil
	}
	if len(w.refusals) > 0 {
		err := w.refusals[0]
		w.refusals = w.refusals[1:]
		if err != nil {
			return nil, err
		}
	}
	if u := w.busy(typ); u != nil {
		return nil, busy(u.typ, u.id)
	}
	u := w.start(typ, to, w.takes, w.ends)
	u.errors = w.errors
	w.tokens[token] = u
	return w.state(u), nil
}

func busy(typ, id string) error {
	return &ekstypes.ResourceInUseException{Message: p(fmt.Sprintf("Cannot %s because cluster shop-green currently has update %s in progress", typ, id))}
}

func (w *world) UpdateClusterVersion(_ context.Context, in *eks.UpdateClusterVersionInput, _ ...func(*eks.Options)) (*eks.UpdateClusterVersionOutput, error) {
	if err := w.call("UpdateClusterVersion"); err != nil {
		return nil, err
	}
	w.inputs = append(w.inputs, in)
	u, err := w.accept("VersionUpdate", *in.Version, *in.ClientRequestToken)
	if err != nil {
		return nil, err
	}
	return &eks.UpdateClusterVersionOutput{Update: u}, w.answer("UpdateClusterVersion")
}

func (w *world) state(u *update) *ekstypes.Update {
	out := &ekstypes.Update{Id: &u.id, Type: ekstypes.UpdateType(u.typ), Status: u.running, CreatedAt: &u.created}
	param := ekstypes.UpdateParamTypeVersion
	if u.typ == "AddonUpdate" {
		param = ekstypes.UpdateParamTypeAddonVersion
	}
	if u.to != "" {
		out.Params = []ekstypes.UpdateParam{{Type: param, Value: &u.to}}
	}
	if w.over(u, 0) {
		out.Status, out.Errors = u.ends, u.errors
	}
	return out
}

func (w *world) ListUpdates(_ context.Context, in *eks.ListUpdatesInput, _ ...func(*eks.Options)) (*eks.ListUpdatesOutput, error) {
	if err := w.call("ListUpdates"); err != nil {
		return nil, err
	}
	var ids []string
	for _, u := range w.updates {
		if (u.typ == "AddonUpdate") == (in.AddonName != nil) {
			ids = append(ids, u.id)
		}
	}
	// One id a page, so that a reader that stops at the first page finds too little.
	at, _ := strconv.Atoi(awssdk.ToString(in.NextToken))
	out := &eks.ListUpdatesOutput{}
	if at < len(ids) {
		out.UpdateIds = ids[at : at+1]
	}
	if at+1 < len(ids) {
		out.NextToken = p(strconv.Itoa(at + 1))
	}
	return out, nil
}

func (w *world) DescribeUpdate(_ context.Context, in *eks.DescribeUpdateInput, _ ...func(*eks.Options)) (*eks.DescribeUpdateOutput, error) {
	if err := w.call("DescribeUpdate"); err != nil {
		return nil, err
	}
	for _, u := range w.updates {
		// EKS knows an add-on's update only together with the add-on's name.
		if u.id == *in.UpdateId && (u.typ == "AddonUpdate") == (in.AddonName != nil) {
			return &eks.DescribeUpdateOutput{Update: w.state(u)}, nil
		}
	}
	return nil, &ekstypes.ResourceNotFoundException{Message: p("No update found for ID: " + *in.UpdateId)}
}

// errCrash is a process that ends, or an answer that never came.
var errCrash = errors.New("killed")
