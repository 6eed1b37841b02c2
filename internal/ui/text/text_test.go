package text_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
)

var update = flag.Bool("update", false, "write the golden files anew")

var at = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// check holds output against a golden file and against the terminal that every
// table has to fit: 80 columns of ASCII.
func check(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
	for i, line := range strings.Split(string(got), "\n") {
		if len(line) > text.Width && len(strings.Fields(line)) > 1 && !strings.Contains(line, "arn:") {
			t.Errorf("line %d has %d columns: %s", i+1, len(line), line)
		}
		for _, r := range line {
			if r < ' ' || r > '~' {
				t.Errorf("line %d holds %q, which is not plain ASCII", i+1, r)
			}
		}
	}
}

func minutes(lo, hi int) state.Expect {
	return state.Expect{Min: state.Duration(time.Duration(lo) * time.Minute), Max: state.Duration(time.Duration(hi) * time.Minute)}
}

func samplePlan() *state.Plan {
	return &state.Plan{
		Format: 1, Run: "20261130T020000-aaaaaa", CreatedAt: at, Name: "shop", Region: "ap-northeast-1", Variant: state.Hot, Target: "1.33",
		Origin: state.Blue, Destination: state.Green,
		Clusters: map[state.Side]state.ClusterView{
			state.Blue:  {Name: "shop-blue", Version: "1.31", Pods: 148, PodsReady: 148},
			state.Green: {Name: "shop-green", Version: "1.31", Pods: 148, PodsReady: 147, Lagging: 3, Owners: 1},
		},
		Traffic: []state.Share{{Target: "route53/api.shop.example.com", Blue: 100}},
		Steps: []state.StepSpec{
			{ID: "preflight", Side: state.Both, Title: "preflight", Changes: "nothing", Expect: state.Expect{Min: state.Duration(20 * time.Second), Max: state.Duration(20 * time.Second)}},
			{ID: "green/control-plane/1.32", Side: state.Green, Kind: state.KindControlPlane, Title: "control plane 1.31 -> 1.32", Changes: "eks:UpdateClusterVersion", Expect: minutes(8, 12)},
			{ID: "green/restart/1", Side: state.Green, Kind: state.KindRestart, Title: "restart 148 pods of 31 owners", Changes: "31 rollouts, 4 at once", Expect: minutes(12, 32)},
			{ID: "traffic/50", Side: state.Both, Phase: state.PhaseCutover, Kind: state.KindTraffic, Title: "traffic 0 -> 50 %, hold 5m", Changes: "route53, elbv2", Expect: minutes(6, 6), Approval: true},
			{ID: "traffic/100", Side: state.Both, Phase: state.PhaseCutover, Kind: state.KindTraffic, Title: "traffic 50 -> 100 %, hold 5m", Changes: "route53, elbv2", Expect: minutes(6, 6)},
		},
		Findings: []state.Finding{
			{Check: "restart/shop/Deployment/legacy-cart", Severity: state.SeverityWarn, Side: state.Green, Text: "shop/Deployment/legacy-cart cannot be restarted: paused Deployment. The run will stop before the cutover", Cure: "resume it"},
			{Check: "insight/deprecated-apis", Severity: state.SeverityError, Text: "an old client\x1b[2J still calls", Waived: "retires on Friday"},
			{Check: "insight/kubelet-version-skew", Severity: state.SeverityError, Text: "kubelets lag", CuredBy: "green/restart/1"},
		},
		CredentialsExpire: at.Add(4*time.Hour + 2*time.Minute),
	}
}

func TestPlan(t *testing.T) {
	var b bytes.Buffer
	text.Plan(&b, samplePlan(), at, "eksbg apply plans/shop-hot.yaml")
	check(t, "plan", b.Bytes())
}

// Long names and long times are cut and moved, never wider than a terminal.
func TestLongNamesAndTimesFit(t *testing.T) {
	p := samplePlan()
	for side, c := range p.Clusters {
		c.Name += strings.Repeat("-of-the-platform-team", 4)
		p.Clusters[side] = c
	}
	p.Steps[2].Expect, p.Steps[2].Changes = minutes(65, 130), "250 rollouts, 4 at once, 31 otherwise"
	var b bytes.Buffer
	text.Plan(&b, p, at, "")
	text.Status(&b, view.Fold([]state.Record{{Kind: state.RecordPlan, Plan: p, Time: at}}), at, "", "")
	text.Summary(&b, view.Fold([]state.Record{{Kind: state.RecordPlan, Plan: p, Time: at}}))
	for _, line := range strings.Split(b.String(), "\n") {
		if len(line) > text.Width {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for _, want := range []string{"shop-blue-of-the-platform-te.. shop-green-of-the", "250 rollouts, 4 a.. 1h05m-2h10m", "blue shop-blue-of-the-platform-t.."} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("does not say %q:\n%s", want, b.String())
		}
	}
}

// Less than a minute is no time at all only where it is none.
func TestShortPlansTakeSomeTime(t *testing.T) {
	p := samplePlan()
	p.Steps = p.Steps[:1]
	p.Steps[0].Expect = state.Expect{Min: state.Duration(25 * time.Second), Max: state.Duration(80 * time.Second)}
	var b bytes.Buffer
	text.Plan(&b, p, at, "")
	if !strings.Contains(b.String(), "In all      25s to 1m;") {
		t.Errorf("%s", b.String())
	}
}

func TestPlanWithNothingToDo(t *testing.T) {
	p := samplePlan()
	p.Steps, p.Findings = nil, nil
	p.Clusters[state.Blue] = state.ClusterView{Name: "shop-blue", Version: "1.33", Pods: 148, PodsReady: 148}
	var b bytes.Buffer
	text.Plan(&b, p, at, "eksbg status plans/shop-hot.yaml")
	check(t, "plan-nothing", b.Bytes())
}

// records is a run that went half way, was put back and stopped.
func records() []state.Record {
	exit := 5
	r := []state.Record{
		{Kind: state.RecordPlan, Plan: samplePlan()},
		{Kind: state.RecordStarted, Step: "preflight"},
		{Kind: state.RecordDone, Step: "preflight", Text: "5 checks, none blocks"},
		{Kind: state.RecordStarted, Step: "green/control-plane/1.32"},
		{Kind: state.RecordIntent, Step: "green/control-plane/1.32", Change: &state.Change{Call: "eks:UpdateClusterVersion", Object: "cluster shop-green"}},
		{Kind: state.RecordOutcome, Step: "green/control-plane/1.32", Intent: 5, Result: state.Accepted, Text: "update f4b35952"},
		{Kind: state.RecordWaiting, Step: "green/control-plane/1.32", Text: "30s of 8-12m, InProgress"},
		{Kind: state.RecordDone, Step: "green/control-plane/1.32", Text: "API server answers 1.32"},
		{Kind: state.RecordDone, Step: "green/restart/1", Text: "no pod lags"},
		{Kind: state.RecordApproval, Step: "traffic/50", Phase: state.PhaseCutover, Text: "phase cutover approved by arn:aws:iam::111122223333:user/ops"},
		{Kind: state.RecordStarted, Step: "traffic/50"},
		{Kind: state.RecordTraffic, Step: "traffic/50", Traffic: []state.Share{{Target: "route53/api.shop.example.com", Blue: 50, Green: 50}}, Text: "blue 50, green 50"},
		{Kind: state.RecordGate, Step: "traffic/50", Gate: &state.GateResult{Gate: "http", Verdict: state.GateFail, Text: "http 97.15 % of 2000 samples: 57 x 502"}},
		{Kind: state.RecordTraffic, Step: "traffic/50", Traffic: []state.Share{{Target: "route53/api.shop.example.com", Blue: 100}}, Text: "blue 100, green 0"},
		{Kind: state.RecordPutBack, Step: "traffic/50", Text: "put back in 0.8s"},
		{Kind: state.RecordFailed, Step: "traffic/50", Text: "gate http failed"},
		{Kind: state.RecordStopped, Text: "gate http failed; the traffic is where it was", Exit: &exit, Next: "eksbg apply plans/shop-hot.yaml --approve cutover"},
	}
	for i := range r {
		r[i].Seq, r[i].Time = int64(i+1), at.Add(time.Duration(i)*time.Minute)
	}
	return r
}

func TestLog(t *testing.T) {
	m := &view.Model{}
	var b bytes.Buffer
	for _, r := range records() {
		m.Apply(r)
		if line := text.Line(m, r); line != "" {
			b.WriteString(line + "\n")
		}
	}
	path := filepath.Join("testdata", "log.golden")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

// The log keeps to the terminal's width. A step's title stands where it begins and ends,
// and what happens between below it.
func TestLogLines(t *testing.T) {
	at := time.Date(2026, 11, 30, 2, 15, 0, 0, time.UTC)
	const step = "green/control-plane/1.32"
	begun := []state.Record{{Kind: state.RecordPlan, Plan: samplePlan()}, {Kind: state.RecordStarted, Step: step, Time: at}}
	long := strings.Repeat("shop/Deployment/cart: ImagePullBackOff of container web; ", 9)
	for name, tt := range map[string]struct {
		before []state.Record
		record state.Record
		want   []string
	}{
		"it begins": {begun[:1], state.Record{Kind: state.RecordStarted, Step: step, Text: "control plane 1.31 -> 1.32"},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     started"}},
		"it ends": {begun, state.Record{Kind: state.RecordDone, Step: step, Text: "by itself"},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     done       0s, by itself"}},
		"to the last column": {begun, state.Record{Kind: state.RecordDone, Step: step, Text: "as it should have"},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     done       0s, as it should have"}},
		"one column too many": {begun, state.Record{Kind: state.RecordDone, Step: step, Text: "as it should have."},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     done", "                 0s, as it should have."}},
		"before it begins": {begun[:1], state.Record{Kind: state.RecordApproval, Step: step, Text: "phase upgrade approved by ops"},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     approved", "                 phase upgrade approved by ops"}},
		"in between": {begun, state.Record{Kind: state.RecordOutcome, Step: step, Result: state.Accepted, Text: "update f4b35952"},
			[]string{"02:15:00         accepted   update f4b35952"}},
		"several lines": {begun, state.Record{Kind: state.RecordWaiting, Step: step, Text: "11 of 12 workloads, 57 of 60 pods on 1.33; rolling shop/Deployment/cart, …"},
			[]string{"02:15:00         waiting    11 of 12 workloads, 57 of 60 pods on 1.33; rolling",
				"                            shop/Deployment/cart, ..."}},
		"one word that is longer": {begun, state.Record{Kind: state.RecordNote, Step: step, Text: "by arn:aws:sts::111122223333:assumed-role/platform-upgrades/somebody@example.com"},
			[]string{"02:15:00         note       by",
				"                            arn:aws:sts::111122223333:assumed-role/platform-upgrades/somebody@example.com"}},
		"of the run itself": {begun, state.Record{Kind: state.RecordNote, Text: "took over the lock"},
			[]string{"02:15:00         note       took over the lock"}},
		"a step that nobody knows": {begun, state.Record{Kind: state.RecordNote, Step: strings.Repeat("x", 40), Text: "odd"},
			[]string{"02:15:00         xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..  note       odd"}},
		"failed": {begun, state.Record{Kind: state.RecordFailed, Step: step, Text: "boom", Exit: new(1)},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     FAILED     boom"}},
		"failed, an old journal": {begun, state.Record{Kind: state.RecordFailed, Step: step, Text: "boom"},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     FAILED     boom"}},
		"interrupted": {begun, state.Record{Kind: state.RecordFailed, Step: step, Text: "interrupted", Exit: new(130)},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     stopped    interrupted"}},
		"an approval is awaited": {begun, state.Record{Kind: state.RecordFailed, Step: step, Text: "approval", Exit: new(4)},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     stopped    approval"}},
		"blocked": {begun, state.Record{Kind: state.RecordFailed, Step: step, Text: "an insight", Exit: new(3)},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     BLOCKED    an insight"}},
		"a long end is shortened": {begun, state.Record{Kind: state.RecordFailed, Step: step, Text: long, Exit: new(3)},
			[]string{"02:15:00  green  control plane 1.31 -> 1.32     BLOCKED",
				"                 shop/Deployment/cart: ImagePullBackOff of container web;",
				"                 shop/Deployment/cart: ImagePullBackOff of container web;",
				"                 shop/Deployment/cart: ImagePullBackOff of container web;",
				"                 shop/Deployment/cart: ImagePullBackOff of container web;",
				"                 shop/Deplo.."}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.record.Time = at
			m := view.Fold(append(tt.before[:len(tt.before):len(tt.before)], tt.record))
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), text.Line(m, tt.record)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	all := records()
	now := at.Add(30 * time.Minute)
	for name, tt := range map[string]struct {
		records []state.Record
		holder  string
		next    string
	}{
		"status-stopped": {all, "", "eksbg apply plans/shop-hot.yaml --approve cutover"},
		"status-at-work": {all[:7], "ops@bastion, process 4711", ""},
		"status-killed":  {all[:13], "", "eksbg apply plans/shop-hot.yaml"},
		"status-interrupted": {append(all[:6:6], state.Record{Seq: 7, Time: at.Add(7 * time.Minute), Kind: state.RecordFailed, Step: "green/control-plane/1.32", Text: "interrupted during green/control-plane/1.32", Exit: new(130)},
			state.Record{Seq: 8, Time: at.Add(7 * time.Minute), Kind: state.RecordStopped, Text: "interrupted during green/control-plane/1.32", Exit: new(130), Next: "eksbg apply plans/shop-hot.yaml --yes"}), "", "eksbg apply plans/shop-hot.yaml --yes"},
		"status-closed": {append(all[:11:11], state.Record{Kind: state.RecordClosed, Time: now}), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			text.Status(&b, view.Fold(tt.records), now, tt.holder, tt.next)
			check(t, name, b.Bytes())
		})
	}
}

func TestSummary(t *testing.T) {
	all := append(records(), state.Record{Kind: state.RecordCluster, Side: state.Green, Cluster: &state.ClusterView{Name: "shop-green", Version: "1.33", Pods: 148, PodsReady: 148}})
	var b bytes.Buffer
	text.Summary(&b, view.Fold(all))
	check(t, "summary", b.Bytes())
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 12 * time.Millisecond: "0s", 9970 * time.Millisecond: "10s", 800 * time.Millisecond: "0.8s", 20 * time.Second: "20s", 12345 * time.Millisecond: "12s",
		534 * time.Second: "8m54s", 5 * time.Minute: "5m", 65 * time.Minute: "1h05m",
	} {
		if got := text.Short(d); got != want {
			t.Errorf("Short(%s) = %s, want %s", d, got, want)
		}
	}
}

// A command in a cure can be pasted: it stays one line, with its blanks as they are.
func TestCuresKeepCommandsWhole(t *testing.T) {
	command := `aws route53 change-resource-record-sets --hosted-zone-id Z0123456789 --change-batch '{"Comment":"two  blanks, and far more than eighty columns of it"}'`
	var b bytes.Buffer
	text.Cure(&b, "Cure        ", "            ", "look who changed it, and if the weights are to be put back by hand, then this does it, entrance by entrance\n"+command)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if got := strings.TrimSpace(lines[len(lines)-1]); got != command {
		t.Errorf("the command became\n%s", b.String())
	}
	for _, l := range lines[:len(lines)-1] {
		if len(l) > text.Width {
			t.Errorf("prose of %d columns: %s", len(l), l)
		}
	}
}
