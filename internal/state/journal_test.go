package state_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eksbg/eksbg/internal/state"
)

var began = time.Date(2026, 11, 30, 1, 2, 3, 456e6, time.UTC)

func pair() *state.Plan {
	return &state.Plan{
		Tool: "v0.1.0", Run: "20261130T010203-0a1b2c", Lineage: "20261130T010203-ffffff", CreatedAt: began,
		Name: "shop", Region: "ap-northeast-1", Variant: state.Hot, Target: "1.33",
		File: "plans/shop.yaml", FileSum: "abc", Origin: state.Blue, Destination: state.Green,
		Clusters: map[state.Side]state.ClusterView{
			state.Blue:  {Name: "shop-blue", ARN: "arn:aws:eks:ap-northeast-1:111122223333:cluster/shop-blue", CreatedAt: began.Add(-time.Hour), Version: "1.31"},
			state.Green: {Name: "shop-green", ARN: "arn:aws:eks:ap-northeast-1:111122223333:cluster/shop-green", CreatedAt: began.Add(-time.Hour), Version: "1.31", Owners: 3},
		},
		Traffic: []state.Share{{Target: "route53/api.shop.example.com", Blue: 100}},
		Steps:   []state.StepSpec{{ID: "preflight", Phase: state.PhasePreflight, Kind: state.KindPreflight}},
	}
}

func ops() state.Who {
	return state.Who{ARN: "arn:aws:sts::111122223333:assumed-role/upgrader/ops", User: "ops", Host: "bastion", PID: 4711}
}

func newClock() *clocktesting.FakePassiveClock { return clocktesting.NewFakePassiveClock(began) }

func create(t *testing.T, path string) *state.Journal {
	t.Helper()
	j, err := state.Create(context.Background(), path, pair(), ops(), newClock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func TestJournalLivesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "there", "shop.journal")
	j := create(t, path)
	var fed []state.Record
	j.OnRecord(func(r state.Record) {
		if len(j.Records("")) != int(r.Seq) {
			t.Errorf("record %d is told before it can be read", r.Seq)
		}
		fed = append(fed, r)
	})
	rec := j.Recorder("green/control-plane/1.32")
	intent, err := rec.Intent("eks:UpdateClusterVersion", "cluster shop-green\x1b[2J", map[string]string{"token": "t-1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rec.Waiting("30s of 8-12m\nInProgress")
	if open := state.OpenIntents(j.Records("")); len(open) != 1 || open[0].Seq != intent {
		t.Errorf("open intents %v, want %d", open, intent)
	}
	if err := rec.Outcome(intent, state.Accepted, "update f4b35952", map[string]string{"id": "f4b35952"}); err != nil {
		t.Fatal(err)
	}
	if err := rec.Record(state.Record{Kind: state.RecordDone, Step: "another", Text: "API server answers 1.32"}); err != nil {
		t.Fatal(err)
	}
	before := j.Records("")
	if diff := cmp.Diff(before[1:], fed); diff != "" {
		t.Errorf("the feed differs from the journal:\n%s", diff)
	}
	if err := errors.Join(j.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}

	for name, mode := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v; want %v", name, info.Mode().Perm(), err, mode)
		}
	}
	again, recovery, err := state.Open(path, newClock())
	if err != nil || recovery != (state.Recovery{}) {
		t.Fatal(recovery, err)
	}
	defer func() { _ = again.Close() }()
	if diff := cmp.Diff(before, again.Records("")); diff != "" {
		t.Errorf("what is read differs from what was appended:\n%s", diff)
	}
	own := again.Records("green/control-plane/1.32")
	if len(own) != 4 || own[0].Change.Object != "cluster shop-green[2J" || own[1].Text != "30s of 8-12m InProgress" ||
		own[3].Kind != state.RecordDone || !own[3].Time.Equal(began) {
		t.Errorf("records of the step: %+v", own)
	}
	if out, ok := state.OutcomeOf(own, intent); !ok || out.Result != state.Accepted || len(state.OpenIntents(own)) != 0 {
		t.Errorf("outcome %+v, %v", out, ok)
	}
	if r, err := again.Append(state.Record{Kind: state.RecordNote}); err != nil || r.Seq != 6 {
		t.Errorf("goes on with %+v, %v; want seq 6", r, err)
	}
}
