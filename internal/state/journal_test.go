package state_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

func TestCreateRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	if err := create(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := state.Create(context.Background(), path, pair(), ops(), newClock()); !errors.Is(err, state.ErrExists) {
		t.Errorf("over another: %v", err)
	}
	// A folder that is a file stands for every one that cannot be written.
	under := filepath.Join(path, "state", "shop.journal")
	if _, err := state.Create(context.Background(), under, pair(), ops(), newClock()); err == nil || !strings.Contains(err.Error(), "--state") || !strings.Contains(err.Error(), under) {
		t.Errorf("in no folder: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	none := filepath.Join(t.TempDir(), "shop.journal")
	if _, err := state.Create(ctx, none, pair(), ops(), newClock()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestLeftoverOfACrash: a process that died before its first record was durable does
// not stand in the way.
func TestLeftoverOfACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	if err := os.WriteFile(path+".new", []byte(`{"seq":1,"ki`), 0o644); err != nil {
		t.Fatal(err)
	}
	create(t, path)
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAppendRefuses(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "shop.journal"))
	for name, r := range map[string]state.Record{
		"no kind":              {},
		"a second plan":        {Kind: state.RecordPlan, Plan: pair()},
		"outcome of the plan":  {Kind: state.RecordOutcome, Intent: 1},
		"outcome of no record": {Kind: state.RecordOutcome, Intent: 99},
		"outcome of nothing":   {Kind: state.RecordOutcome},
		"no JSON":              {Kind: state.RecordNote, Detail: []byte("{")},
	} {
		if _, err := j.Append(r); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := j.Recorder("x").Intent("c", "o", func() {}, nil); err == nil || !strings.Contains(err.Error(), "c on o") {
		t.Errorf("a detail that cannot be JSON: %v", err)
	}
	if j.Err() != nil || len(j.Records("")) != 1 {
		t.Errorf("a refused record broke the journal: %v", j.Err())
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(state.Record{Kind: state.RecordNote}); !errors.Is(err, state.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestArchiveMakesRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	j := create(t, path)
	if _, err := j.Archive(); err == nil || j.Closed() {
		t.Errorf("a run that is not over was put away: %v", err)
	}
	exit := 0
	if _, err := j.Append(state.Record{Kind: state.RecordClosed, Exit: &exit}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// A crash between the last record and the archive: the next process does it.
	j, _, err := state.Open(path, newClock())
	if err != nil || !j.Closed() {
		t.Fatal(err)
	}
	to, err := j.Archive()
	if want := strings.TrimSuffix(path, ".journal") + ".20261130T010203-0a1b2c.journal"; err != nil || to != want {
		t.Fatalf("archived as %s, %v; want %s", to, err, want)
	}
	if records, _, err := state.Read(to); err != nil || len(records) != 2 {
		t.Errorf("the archive holds %d records, %v", len(records), err)
	}
	if _, err := j.Append(state.Record{Kind: state.RecordNote}); !errors.Is(err, state.ErrClosed) {
		t.Errorf("append to the archive: %v", err)
	}
	if _, err := j.Archive(); err == nil {
		t.Error("archived twice")
	}
	next := create(t, path)
	if len(next.Records("")) != 1 {
		t.Error("the next run does not begin anew")
	}
	// The same run id again must not overwrite the archive.
	if _, err := next.Append(state.Record{Kind: state.RecordClosed}); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Archive(); err == nil || !strings.Contains(err.Error(), to) {
		t.Errorf("over another archive: %v", err)
	}
	if records, _, err := state.Read(to); err != nil || len(records) != 2 {
		t.Errorf("the archive now holds %d records, %v", len(records), err)
	}
}

func TestMatches(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "shop.journal"))
	cluster := func(p *state.Plan, f func(*state.ClusterView)) {
		v := p.Clusters[state.Green]
		f(&v)
		p.Clusters[state.Green] = v
	}
	for name, c := range map[string]struct {
		change func(*state.Plan)
		names  []string // both sides; none for a plan that is taken
	}{
		"the same":         {func(*state.Plan) {}, nil},
		"another target":   {func(p *state.Plan) { p.Target, p.Run, p.FileSum = "1.34", "x", "y" }, nil},
		"not yet existing": {func(p *state.Plan) { delete(p.Clusters, state.Green) }, nil},
		"name":             {func(p *state.Plan) { p.Name = "bank" }, []string{"shop", "bank"}},
		"region":           {func(p *state.Plan) { p.Region = "us-east-1" }, []string{"ap-northeast-1", "us-east-1"}},
		"variant":          {func(p *state.Plan) { p.Variant = state.Cold }, []string{"variant", "hot", "cold"}},
		"cluster": {func(p *state.Plan) { cluster(p, func(v *state.ClusterView) { v.ARN = "arn:other" }) },
			[]string{"green", "cluster/shop-green", "arn:other"}},
		"built anew": {func(p *state.Plan) { cluster(p, func(v *state.ClusterView) { v.CreatedAt = began }) },
			[]string{"green", "2026-11-30T00:02:03Z", "2026-11-30T01:02:03Z"}},
	} {
		p := pair()
		c.change(p)
		err := j.Matches(p)
		var mismatch *state.ErrMismatch
		if (err == nil) != (c.names == nil) || (err != nil && !errors.As(err, &mismatch)) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, n := range c.names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("%s: %v does not name %s", name, err, n)
			}
		}
	}
}

// TestManyAtOnce: steps, the feed and a reader of the file at the same time.
func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	j := create(t, path)
	var fed []int64
	j.OnRecord(func(r state.Record) { fed = append(fed, r.Seq) })
	const steps, each = 8, 25
	var group sync.WaitGroup
	for i := range steps {
		group.Go(func() {
			rec := j.Recorder(fmt.Sprint(i))
			for range each {
				intent, err := rec.Intent("c", "o", nil, nil)
				if err == nil {
					err = rec.Outcome(intent, state.Succeeded, "", nil)
				}
				if err != nil {
					t.Error(err)
				}
				rec.Waiting("…")
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for reading, last := true, 0; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		records, _, err := state.Read(path)
		if err != nil || len(records) < last {
			t.Fatalf("read %d records after %d, %v", len(records), last, err)
		}
		last = len(records)
	}
	if len(fed) != steps*each*3 || !slices.IsSorted(fed) {
		t.Errorf("%d records told, in order: %v", len(fed), slices.IsSorted(fed))
	}
	if own := j.Records("3"); len(own) != each*3 || len(state.OpenIntents(own)) != 0 {
		t.Errorf("step 3 has %d records, %d open", len(own), len(state.OpenIntents(own)))
	}
}

func TestHistory(t *testing.T) {
	records := []state.Record{
		{Seq: 1, Kind: state.RecordPlan},
		{Seq: 2, Kind: state.RecordIntent},
		{Seq: 3, Kind: state.RecordIntent},
		{Seq: 4, Kind: state.RecordOutcome, Intent: 2, Result: state.Accepted},
		{Seq: 5, Kind: state.RecordOutcome, Intent: 2, Result: state.Failed},
	}
	if open := state.OpenIntents(records); len(open) != 1 || open[0].Seq != 3 {
		t.Errorf("open %v", open)
	}
	if r, ok := state.OutcomeOf(records, 2); !ok || r.Result != state.Failed {
		t.Errorf("outcome of 2: %v, %v", r, ok)
	}
	if _, ok := state.OutcomeOf(records, 3); ok {
		t.Error("3 has an outcome")
	}
	if r, ok := state.LastOf(records, state.RecordIntent); !ok || r.Seq != 3 {
		t.Errorf("last intent %v, %v", r, ok)
	}
	if _, ok := state.LastOf(records, state.RecordClosed); ok {
		t.Error("found what is not there")
	}
	if of := state.OfKind(records, state.RecordOutcome); len(of) != 2 || of[0].Seq != 4 {
		t.Errorf("outcomes %v", of)
	}
}

// A file that took the journal's place while the run was under way is another run's.
func TestArchiveLeavesAnotherRunsFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	j := create(t, path)
	exit := 0
	if _, err := j.Append(state.Record{Kind: state.RecordClosed, Exit: &exit}); err != nil {
		t.Fatal(err)
	}
	other := *j.Plan()
	other.Run = "20261130T999999-other"
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := state.SavePlan(path, &other); err != nil { // the same document as a first record
		t.Fatal(err)
	}
	if to, err := j.Archive(); err == nil {
		t.Errorf("archived another run's journal as %s", to)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := state.LoadPlan(path); err != nil || p.Run != other.Run {
		t.Errorf("the other run's file: %v, %v", p, err)
	}
}

// Whether a journal can be made is told before anybody is asked, and leaves nothing behind.
func TestCanCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state", "shop.journal")
	if err := state.CanCreate(path); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := state.CanCreate(filepath.Join(file, "shop.journal")); err == nil || !strings.Contains(err.Error(), "shop.journal") {
		t.Errorf("got %v", err)
	}
}
