package cutover

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// Semantics 13.
func TestCredentialsMustOutlastTheStage(t *testing.T) {
	tests := []struct {
		name string
		left time.Duration
		err  error
		code state.Exit
		text string
	}{
		{"too short", 10 * time.Minute, nil, state.ExitResumable, "the credentials end at"},
		{"nobody can tell", 0, errors.New("no metadata"), state.ExitResumable, "nobody can tell"},
		{"long enough", 12 * time.Minute, nil, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.stages = []int{10}
			end := w.clock.Now().Add(tt.left)
			w.deps = func(d *StageDeps) {
				d.Remaining = time.Hour
				d.CredentialsExpire = func(context.Context) (time.Time, error) { return end, tt.err }
			}
			err := w.walk(context.Background())
			if tt.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if warned := w.journal.of(state.RecordWarning); len(warned) != 1 || !strings.Contains(warned[0].Text, "before the last stage would") {
					t.Errorf("warnings %+v", warned)
				}
				return
			}
			wantStop(t, err, tt.code, tt.text)
			w.wantWhere(atStart)
		})
	}
}

func TestNoCredentialsEndIsFine(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	w.deps = func(d *StageDeps) {
		d.CredentialsExpire = func(context.Context) (time.Time, error) { return time.Time{}, nil }
	}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// A stop after a change that nobody has read back yet leaves the weights in the journal.
func TestCredentialsThatAreTooShortOnResume(t *testing.T) {
	w := newWorld(t)
	w.crashAt = pointOf(t, w, "after ChangeResourceRecordSets", 1)
	if died, err := w.dies(context.Background()); !died {
		t.Fatalf("did not die: %v", err)
	}
	w.crashAt = 0
	w.clock.Step(time.Hour)
	end := w.clock.Now().Add(5 * time.Minute)
	w.deps = func(d *StageDeps) {
		d.CredentialsExpire = func(context.Context) (time.Time, error) { return end, nil }
	}
	wantStop(t, w.walk(context.Background()), state.ExitResumable, "the credentials end at")
	const zoneOnly = "A 90/10, AAAA 90/10, shop-blue=1 shop-green=0"
	w.wantWhere(zoneOnly)
	if got := lastWeights(w); got != zoneOnly {
		t.Errorf("recorded %s, want %s", got, zoneOnly)
	}
}

// What happens before the shift takes its time too: what the credentials outlast counts
// from the shift.
func TestCredentialsAreHeldAgainstTheShiftItself(t *testing.T) {
	tests := []struct {
		name string
		do   func(w *world)
		// stages that pass beforehand, with credentials that do not end.
		passed []int
		where  string
	}{
		{"a target group gets healthy late", func(w *world) { w.lb.groups[tgGreen].warmup = 9 * time.Minute }, nil, atStart},
		{"a gate answers late", func(w *world) {
			two := 2.0
			w.prober.bad, w.prober.badName = map[state.Side]float64{state.Blue: 2, state.Green: 2}, &two
			w.clock.after(8*time.Minute, func() { w.prober.bad, w.prober.badName = nil, nil })
		}, []int{10}, atTen},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.stages = tt.passed
			if err := w.walk(context.Background()); err != nil {
				t.Fatal(err)
			}
			tt.do(w)
			end := w.clock.Now().Add(12 * time.Minute)
			w.deps = func(d *StageDeps) {
				d.CredentialsExpire = func(context.Context) (time.Time, error) { return end, nil }
			}
			w.stages = append(w.stages, 50)
			wantStop(t, w.walk(context.Background()), state.ExitResumable, "the credentials end at", "Nobody watches these weights")
			w.wantWhere(tt.where)
			end = w.clock.Now().Add(time.Hour)
			if err := w.walk(context.Background()); err != nil {
				t.Fatalf("logged in for longer: %v", err)
			}
			w.wantWhere(atFifty)
		})
	}
}
