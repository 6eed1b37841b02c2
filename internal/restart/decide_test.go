package restart

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

func TestDecide(t *testing.T) {
	const mine, before, foreign = "2026-11-30T10:00:00Z", "2026-11-01T10:00:00+09:00", "2026-11-30T20:00:00+09:00"
	old, new1 := podView{Name: "cart-1", Place: lagging}, podView{Name: "cart-2", Place: current, Ready: true}
	going := podView{Name: "cart-3", Place: lagging, Terminating: true}
	pending := podView{Name: "cart-4", Place: nowhere}
	pending2 := podView{Name: "cart-5", Place: nowhere}
	base := view{Found: true, Kind: "Deployment", UID: "u", Generation: 4, Observed: 4, Desired: 1, Replicas: 1, Updated: 1, Ready: 1}
	with := func(v view, stamp string, pods ...podView) view { v.Stamp, v.Pods = stamp, pods; return v }
	rolling := base
	rolling.Replicas = 2
	unready, halted := base, rolling
	unready.Ready, halted.Paused = 0, true
	short, none := base, base
	short.Desired, short.Replicas, short.Updated = 3, 3, 3
	held := short
	held.Paused = true
	none.Desired, none.Observed = 0, 3
	paused := base
	paused.Paused = true
	unseen := base
	unseen.Observed = 3
	last := attempt{Seq: 7, Number: 1, Stamp: mine, landed: landed{UID: "u", Generation: 4}}
	open := attempt{Seq: 7, Number: 1, Stamp: mine, Open: true}
	failed := last
	failed.Failed = true
	third := last
	third.Number = 3
	stale := last
	stale.Generation = 5
	again := last
	again.UID = "made anew"
	again.Generation = 5

	tests := map[string]struct {
		v    view
		a    attempt
		hop  string
		want act
	}{
		"lags, never restarted":                            {with(base, before, old), attempt{}, "", actRestart},
		"does not lag":                                     {with(base, before, new1), attempt{}, "", actDone},
		"all pending, never restarted":                     {with(base, before, pending), attempt{}, "", actWait},
		"old pods going by themselves":                     {with(base, before, new1, going), attempt{}, "", actWait},
		"mid-rollout of an image, never restarted":         {with(rolling, before, old, new1), attempt{}, mine, actWait},
		"not all ready, no rollout, never restarted":       {with(unready, before, old, new1), attempt{}, mine, actRestart},
		"paused under our rollout":                         {with(halted, mine, old, new1), last, mine, actPinned},
		"restarted by hand since the hop began":            {with(rolling, foreign, old, new1), attempt{}, mine, actForeign},
		"restarted by hand in the hop's second":            {with(rolling, mine, old, new1), attempt{}, mine, actForeign},
		"restarted by hand, complete, lags":                {with(base, foreign, old), attempt{}, mine, actRestart},
		"restarted by hand, one of three moved":            {with(short, foreign, new1, pending, pending2), attempt{}, mine, actForeign},
		"restarted by hand, moved, old pod going":          {with(short, foreign, new1, going), attempt{}, mine, actForeign},
		"restarted by hand, all moved, complete":           {with(base, foreign, new1), attempt{}, mine, actDone},
		"restarted by hand before the hop, one moved":      {with(short, before, new1, pending, pending2), attempt{}, mine, actDone},
		"restarted by hand, paused, none lags":             {with(held, foreign, new1, pending), attempt{}, mine, actDone},
		"restarted by hand, scaled to 0":                   {with(none, foreign), attempt{}, mine, actDone},
		"paused":                                           {with(paused, before, old), attempt{}, "", actPinned},
		"open, landed":                                     {with(rolling, mine, old, new1), open, mine, actClose},
		"open, not landed":                                 {with(base, before, old), open, mine, actResend},
		"open, overtaken":                                  {with(rolling, foreign, old), open, mine, actClose},
		"open, no longer lags":                             {with(base, before, new1), open, mine, actClose},
		"open, paused":                                     {with(paused, before, old), open, mine, actClose},
		"restarted, rolling":                               {with(rolling, mine, old, new1), last, mine, actWait},
		"restarted, generation not observed":               {with(unseen, mine, new1), last, mine, actWait},
		"restarted, old pod terminating":                   {with(base, mine, new1, going), last, mine, actWait},
		"restarted, complete, new pod pending":             {with(base, mine, pending), last, mine, actWait},
		"restarted, complete, a pod too few in sight":      {with(base, mine), last, mine, actWait},
		"restarted, done":                                  {with(base, mine, new1), last, mine, actDone},
		"restarted, complete, lags":                        {with(base, mine, old), last, mine, actRestart},
		"restarted, by hand too, rolling":                  {with(rolling, foreign, old), last, mine, actForeign},
		"restarted, annotation taken away, rolling":        {with(rolling, before, old), last, mine, actWait},
		"restarted, annotation taken away, complete, lags": {with(base, before, old), last, mine, actReverted},
		"failed or reverted before, taken away, lags":      {with(base, before, old), failed, mine, actRestart},
		"failed before, still rolling":                     {with(rolling, mine, old), failed, mine, actWait},
		"restarted three times, lags":                      {with(base, mine, old), third, mine, actExhausted},
		"watch behind the patch":                           {with(base, before, old), stale, mine, actWait},
		"made anew under the same name":                    {with(base, before, old), again, mine, actRestart},
		"deleted, pods leaving":                            {view{Pods: []podView{going}}, last, mine, actWait},
		"deleted":                                          {view{}, last, mine, actDone},
		"scaled to 0, pods leaving":                        {view{Found: true, UID: "u", Generation: 5, Observed: 5, Pods: []podView{old}}, last, mine, actWait},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := decide(tt.v, tt.a, tt.hop); got.act != tt.want {
				t.Errorf("act %d (%s), want %d", got.act, got.text, tt.want)
			}
		})
	}
}

func drawView(t *rapid.T) view {
	n := func(what string) int32 { return rapid.Int32Range(0, 3).Draw(t, what) }
	v := view{Found: rapid.Bool().Draw(t, "found"), Kind: rapid.SampledFrom([]string{"Deployment", "StatefulSet"}).Draw(t, "kind"), UID: "u",
		Generation: int64(n("generation")), Observed: int64(n("observed")), Desired: n("desired"), Replicas: n("replicas"), Updated: n("updated"), Ready: n("ready"),
		Paused: rapid.Bool().Draw(t, "paused"), Strategy: rapid.SampledFrom([]string{"RollingUpdate", "OnDelete"}).Draw(t, "strategy"), Partition: n("partition"),
		Stamp: rapid.SampledFrom(drawnStamps).Draw(t, "live")}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		v.Pods = append(v.Pods, podView{Name: fmt.Sprintf("w-%d", i), Place: place(rapid.IntRange(0, 2).Draw(t, "place")),
			Terminating: rapid.Bool().Draw(t, "terminating"), Ready: rapid.Bool().Draw(t, "ready")})
	}
	return v
}

var drawnStamps = []string{"", "yesterday", "2026-11-30T10:00:00Z", "2026-11-30T10:00:01Z", "2026-11-30T20:00:00+09:00"}

// Whatever the watches show: no restart without a pod that needs one, none too many,
// none beside an open intent, and done is done as semantics 11 says.
func TestDecideProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		a := attempt{}
		if a.Number = rapid.IntRange(0, 3).Draw(t, "attempt"); a.Number > 0 {
			a.Seq, a.Stamp = 7, rapid.SampledFrom(drawnStamps[2:]).Draw(t, "stamp")
			a.Open = rapid.Bool().Draw(t, "open")
			a.landed = landed{UID: "u", Generation: rapid.Int64Range(0, 3).Draw(t, "landed")}
		}
		hop := rapid.SampledFrom(drawnStamps).Draw(t, "hop")
		d := decide(v, a, hop)
		standing, on := 0, 0
		for _, p := range v.Pods {
			if p.Place == lagging && !p.Terminating {
				standing++
			}
			if p.Place == current {
				on++
			}
		}
		sends := d.act == actRestart || d.act == actResend
		switch {
		case sends && (standing == 0 || !v.Found || v.Desired == 0 || v.Paused && v.Kind == "Deployment"):
			t.Fatalf("restart without need: %+v", v)
		case d.act == actRestart && (a.Open || a.Number >= maxAttempts):
			t.Fatalf("attempt after %+v", a)
		case d.act == actRestart && a.Number > 0 && !v.complete():
			t.Fatalf("a new attempt in the middle of a rollout: %+v", v)
		case d.act == actResend && !a.Open:
			t.Fatal("nothing to send again")
		case d.act == actDone && a.Number > 0 && v.Found && v.Desired > 0 && (on < len(v.Pods) || v.Ready != v.Desired || v.Observed < v.Generation || on < int(v.Desired)):
			t.Fatalf("not done: %+v", v)
		case d.act == actDone && a.Number == 0 && v.Found && v.Desired > 0 && newer(v.Stamp, hop) && !v.complete() && v.pinned() == "":
			t.Fatalf("somebody else's restart is not done: %+v", v)
		case d.act == actDone && len(v.Pods) > 0 && on == 0:
			t.Fatalf("none on the new kubelet: %+v", v)
		case (d.act == actClose) != (d.result != ""):
			t.Fatalf("%+v", d)
		}
	})
}

// What a journal holds is read back as it was written, refusals left out.
func TestAttemptsFromJournal(t *testing.T) {
	j := &memory{now: func() time.Time { return start }}
	first, err := j.Intent("k8s:patch deployments", cart, stamped{Owner: cart, UID: "u", Attempt: 1, Stamp: "2026-11-30T10:00:00Z"}, nil)
	must(err)
	must(j.Outcome(first, state.Accepted, "", landed{UID: "u", Generation: 4}))
	second, err := j.Intent("k8s:patch deployments", cart, stamped{Owner: cart, UID: "u", Attempt: 2, Stamp: "2026-11-30T11:00:00Z"}, nil)
	must(err)
	j.add(state.Record{Kind: state.RecordIntent, Change: &state.Change{Call: "eks:UpdateAddon", Detail: json.RawMessage(`{"token":"x"}`)}})
	led := readLedger(j.Records(""), nil)
	last, stamps := led.last, led.stamps
	want := map[string]attempt{cart: {Seq: second, Number: 2, Stamp: "2026-11-30T11:00:00Z", Open: true, landed: landed{UID: "u"}}}
	if diff := cmp.Diff(want, last, cmp.AllowUnexported(attempt{})); diff != "" {
		t.Error(diff)
	}
	must(j.Outcome(second, state.Rejected, "no", nil))
	last = readLedger(j.Records(""), nil).last
	want[cart] = attempt{Seq: first, Number: 1, Stamp: "2026-11-30T10:00:00Z", landed: landed{UID: "u", Generation: 4}}
	if diff := cmp.Diff(want, last, cmp.AllowUnexported(attempt{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[int]string{1: "2026-11-30T10:00:00Z", 2: "2026-11-30T11:00:00Z"}, stamps); diff != "" {
		t.Error(diff)
	}
}

func TestStampFor(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	stamps := map[int]string{}
	if got := stampFor(stamps, 1, "", now); got != "2026-11-30T10:00:00Z" {
		t.Errorf("first: %s", got)
	}
	if got := stampFor(stamps, 1, "2026-11-30T10:30:00Z", now.Add(time.Hour)); got != "2026-11-30T10:30:01Z" {
		t.Errorf("restarted by hand since: %s", got)
	}
	if got := stampFor(stamps, 1, "2026-11-30T10:00:00Z", now.Add(time.Hour)); got != "2026-11-30T10:00:01Z" {
		t.Errorf("the same value would change nothing: %s", got)
	}
	if got := stampFor(stamps, 1, "last week", now.Add(time.Hour)); got != "2026-11-30T10:00:00Z" {
		t.Errorf("same attempt, later: %s", got)
	}
	if got := stampFor(stamps, 2, "2026-11-30T10:00:00Z", now); got != "2026-11-30T10:00:01Z" {
		t.Errorf("second attempt in the same second: %s", got)
	}
}
