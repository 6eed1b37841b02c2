package state_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/state"
)

func TestSavedPlanThereAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.plan")
	p := pair()
	p.Findings = []state.Finding{{Check: "pdb", Text: "\x1b[31mred", Cure: "kubectl get pdb\nkubectl edit pdb"}}
	if err := state.SavePlan(path, p); err != nil {
		t.Fatal(err)
	}
	have, err := state.LoadPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	want := *p
	want.Format, want.Fingerprint = state.FormatVersion, p.Sum()
	want.Findings = []state.Finding{{Check: "pdb", Text: "[31mred", Cure: "kubectl get pdb\nkubectl edit pdb"}}
	if diff := cmp.Diff(&want, have); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// It is the same document as the first record of a journal.
	if records, _, err := state.Read(path); err != nil || len(records) != 1 || records[0].Kind != state.RecordPlan {
		t.Errorf("read as a journal: %v, %v", records, err)
	}
	if err := state.SavePlan(path, p); err != nil {
		t.Errorf("save over it: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

func TestLoadPlanRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "shop.plan")
	if err := state.SavePlan(path, pair()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var damaged *state.ErrDamaged
	for name, bad := range map[string][]byte{
		"another weight": bytes.Replace(content, []byte(`"blue":100`), []byte(`"blue":101`), 1),
		"half":           content[:len(content)/2],
		"empty":          {},
	} {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := state.LoadPlan(path); !errors.As(err, &damaged) || damaged.Line != 1 {
			t.Errorf("%s: %v", name, err)
		}
		if name != "empty" && !state.IsPlan(bad) {
			t.Errorf("%s: no longer told from a plan file", name)
		}
	}
	if _, err := state.LoadPlan(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	j := create(t, filepath.Join(dir, "shop.journal"))
	if _, err := j.Append(state.Record{Kind: state.RecordNote}); err != nil {
		t.Fatal(err)
	}
	if _, err := state.LoadPlan(j.Path()); err == nil || !strings.Contains(err.Error(), "journal") {
		t.Errorf("a journal: %v", err)
	}
	if err := state.SavePlan(filepath.Join(dir, "none", "shop.plan"), pair()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestIsPlan(t *testing.T) {
	for content, want := range map[string]bool{
		"": false, "apiVersion: eksbg.dev/v1\n": false, `{"apiVersion": "eksbg.dev/v1", "kind": "UpgradePlan"}`: false,
		`{"kind": "plan"}`: false, `{"kind": "plan", "plan": "x"}`: false,
		`{"seq":1,"kind":"plan","plan":{}}`: true, "\n {\n \"kind\": \"plan\",\n \"plan\": {\"format\": 1}}": true,
		`{"seq":1,"ki`: true,
	} {
		if have := state.IsPlan([]byte(content)); have != want {
			t.Errorf("%q: %v", content, have)
		}
	}
}

// TestSum changes each field of a plan: those that the world or the plan file decide
// change the fingerprint, the others do not.
func TestSum(t *testing.T) {
	full := func() *state.Plan {
		p := pair()
		p.Traffic = append(p.Traffic, state.Share{Target: "alb/shop/f2f7dc8efc522ab2", Blue: 1})
		p.Findings = []state.Finding{{Check: "b", Severity: state.SeverityWarn}, {Check: "a", Severity: state.SeverityError}}
		return p
	}
	base := full().Sum()
	if len(base) != 64 {
		t.Fatalf("sum %q", base)
	}
	cluster := func(p *state.Plan, f func(*state.ClusterView)) {
		v := p.Clusters[state.Green]
		f(&v)
		p.Clusters[state.Green] = v
	}
	for name, c := range map[string]struct {
		differ bool
		change func(p *state.Plan)
	}{
		"run":         {false, func(p *state.Plan) { p.Run = "other" }},
		"lineage":     {false, func(p *state.Plan) { p.Lineage = "other" }},
		"tool":        {false, func(p *state.Plan) { p.Tool = "other" }},
		"time":        {false, func(p *state.Plan) { p.CreatedAt = p.CreatedAt.Add(time.Hour) }},
		"credentials": {false, func(p *state.Plan) { p.CredentialsExpire = began }},
		"fingerprint": {false, func(p *state.Plan) { p.Fingerprint = "other" }},
		"format":      {false, func(p *state.Plan) { p.Format = 1 }},
		"named side":  {false, func(p *state.Plan) { p.Active = state.Blue }}, // the origin says it
		"path":        {false, func(p *state.Plan) { p.File = "elsewhere.yaml" }},
		"pods": {false, func(p *state.Plan) {
			cluster(p, func(v *state.ClusterView) { v.Pods, v.PodsReady, v.Lagging = 9, 8, 7 })
		}},
		"status": {false, func(p *state.Plan) { cluster(p, func(v *state.ClusterView) { v.Status = "UPDATING" }) }},
		"zone of time": {false, func(p *state.Plan) {
			cluster(p, func(v *state.ClusterView) { v.CreatedAt = v.CreatedAt.In(time.FixedZone("JST", 32400)) })
		}},
		"finished jobs": {false, func(p *state.Plan) {
			p.Findings = append(p.Findings, state.Finding{Check: "jobs/finished", Severity: state.SeverityInfo})
		}},
		"access": {false, func(p *state.Plan) { // follows from the owners
			p.Access = map[state.Side][]state.Access{state.Green: {{Verb: "watch", Resource: "pods"}}}
		}},
		"titles":        {false, func(p *state.Plan) { p.Steps[0].Title, p.Steps[0].Changes = "restart 9 pods", "9 rollouts" }},
		"expectation":   {false, func(p *state.Plan) { p.Steps[0].Expect.Max = 1 }},
		"finding text":  {false, func(p *state.Plan) { p.Findings[0].Text, p.Findings[0].Cure = "9 pods", "wait" }},
		"finding order": {false, func(p *state.Plan) { p.Findings[0], p.Findings[1] = p.Findings[1], p.Findings[0] }},
		"traffic order": {false, func(p *state.Plan) { p.Traffic[0], p.Traffic[1] = p.Traffic[1], p.Traffic[0] }},

		"name":        {true, func(p *state.Plan) { p.Name = "other" }},
		"region":      {true, func(p *state.Plan) { p.Region = "other" }},
		"variant":     {true, func(p *state.Plan) { p.Variant = state.Warm }},
		"target":      {true, func(p *state.Plan) { p.Target = "1.34" }},
		"file":        {true, func(p *state.Plan) { p.FileSum = "other" }},
		"origin":      {true, func(p *state.Plan) { p.Origin = state.Green }},
		"destination": {true, func(p *state.Plan) { p.Destination = state.Blue }},
		"arn":         {true, func(p *state.Plan) { cluster(p, func(v *state.ClusterView) { v.ARN += "x" }) }},
		"born": {true, func(p *state.Plan) {
			cluster(p, func(v *state.ClusterView) { v.CreatedAt = v.CreatedAt.Add(time.Second) })
		}},
		"version":     {true, func(p *state.Plan) { cluster(p, func(v *state.ClusterView) { v.Version = "1.32" }) }},
		"owners":      {true, func(p *state.Plan) { cluster(p, func(v *state.ClusterView) { v.Owners++ }) }},
		"no cluster":  {true, func(p *state.Plan) { delete(p.Clusters, state.Green) }},
		"operation":   {true, func(p *state.Plan) { p.Operation = state.OperationRestart }},
		"side":        {true, func(p *state.Plan) { p.Side = state.Green }},
		"entrances":   {true, func(p *state.Plan) { p.Entrances = json.RawMessage(`[{"alb":{}}]`) }},
		"weight":      {true, func(p *state.Plan) { p.Traffic[0].Green = 1 }},
		"step":        {true, func(p *state.Plan) { p.Steps[0].ID = "other" }},
		"step to":     {true, func(p *state.Plan) { p.Steps[0].To = "1.32" }},
		"no step":     {true, func(p *state.Plan) { p.Steps = nil }},
		"severity":    {true, func(p *state.Plan) { p.Findings[0].Severity = state.SeverityError }},
		"waived":      {true, func(p *state.Plan) { p.Findings[0].Waived = "reason" }},
		"new finding": {true, func(p *state.Plan) { p.Findings = append(p.Findings, state.Finding{Check: "c"}) }},
	} {
		p := full()
		c.change(p)
		if (p.Sum() != base) != c.differ {
			t.Errorf("%s: the fingerprint changes: %v", name, !c.differ)
		}
	}
	// A new field has to be judged here.
	if n := reflect.TypeFor[state.Plan]().NumField(); n != 24 {
		t.Errorf("Plan has %d fields; put the new one into Sum or into this table, and count again", n)
	}
}

func TestNewID(t *testing.T) {
	var ids []string
	for i := range 5 {
		id, err := state.NewID(began.Add(time.Duration(i)*time.Second), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if !sort.StringsAreSorted(ids) || !strings.HasPrefix(ids[0], "20261130T010203-") || len(ids[0]) != len("20261130T010211-ab12cd") {
		t.Errorf("ids %v", ids)
	}
	if id, err := state.NewID(began, strings.NewReader("\xab\x12\xcd")); err != nil || id != "20261130T010203-ab12cd" {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := state.NewID(began, strings.NewReader("x")); err == nil {
		t.Error("no error without random bytes")
	}
}

func TestRunIDsBecomeFileNames(t *testing.T) {
	for _, id := range []string{"", ".", "..", ".hidden", "a/b", "../a", "a\x00b", "a\nb", strings.Repeat("a", 101)} {
		p := pair()
		p.Run = id
		if _, err := state.Create(context.Background(), filepath.Join(t.TempDir(), "shop.journal"), p, ops(), newClock()); err == nil {
			t.Errorf("%q was taken", id)
		}
	}
}
