package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// typist types an answer when somebody reads it, after what happens meanwhile.
type typist struct {
	meanwhile func()
	answer    string
}

func (t *typist) Read(b []byte) (int, error) {
	if t.meanwhile != nil {
		t.meanwhile()
		t.meanwhile = nil
	}
	n := copy(b, t.answer)
	if t.answer = t.answer[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// asking is a run on a terminal that has recorded some waiting.
func asking(in io.Reader, out io.Writer) *applied {
	s := streams{in: in, out: out, err: &patient{w: out}, clock: clock.RealClock{}, interactive: true}
	a := &applied{o: &applyOptions{streams: s}, session: &session{streams: s, caller: new(string)}}
	a.log = newPlainLog(s.err, &view.Model{})
	for range 50 {
		a.log.record(state.Record{Kind: state.RecordNote, Text: "before"})
	}
	return a
}

var liveRestart = run.Ask{Phase: state.PhaseRestartLive, Why: "green has come to get traffic since this was planned, and it restarts its pods",
	Step: state.StepSpec{Title: "restart 148 pods of 31 owners", Changes: "31 rollouts, 4 at once, 12 otherwise"}}

// What was recorded before a question stands above it, what comes while it stands there
// below the answer, and the question keeps to the terminal's width.
func TestAQuestionIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer, below string
		approved      bool
	}{
		"yes":                  {"yes\n", "goes on: noted meanwhile\n", true},
		"no":                   {"no\n", "goes on: noted meanwhile\n", false},
		"the end of the input": {"", "goes on: \nnoted meanwhile\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			in := &typist{answer: tt.answer}
			a := asking(in, &out)
			shown := ""
			in.meanwhile = func() {
				if _, err := io.WriteString(a.o.err, "noted meanwhile\n"); err != nil {
					t.Error(err)
				}
				shown = out.String() // nothing writes to it now
			}
			who, err := (&control{applied: a}).Approve(t.Context(), liveRestart)
			a.log.close()
			if err != nil || (who != nil) != tt.approved {
				t.Errorf("%v, %v", who, err)
			}
			if strings.Count(shown, "before") != 50 || !strings.HasSuffix(shown, "\nApprove? Only 'yes' goes on: ") {
				t.Errorf("at the question:\n%s", shown)
			}
			if !strings.HasSuffix(out.String(), tt.below) {
				t.Errorf("after it:\n%s", out.String())
			}
			for _, line := range strings.Split(shown, "\n") {
				if len(line) > text.Width {
					t.Errorf("%d columns: %s", len(line), line)
				}
			}
		})
	}
}

// A question whose time is over leaves its line to what was kept.
func TestAQuestionThatIsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("the lock is lost")
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	var out bytes.Buffer
	s := streams{in: r, err: &patient{w: &out}}
	cancel(over)
	if ok, err := ask(ctx, s, "Go on? Only 'yes' does:"); ok || !errors.Is(err, over) {
		t.Errorf("%v, %v", ok, err)
	}
	if out.String() != "\nGo on? Only 'yes' does: " {
		t.Errorf("%q", out.String())
	}
}
