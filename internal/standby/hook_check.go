package standby

import (
	"context"
	"fmt"

	"github.com/eksbg/eksbg/internal/state"
)

// checkNotDoneExit is the exit code with which a check says that the work is not done
// and the command may be run: `terraform plan -detailed-exitcode` means by it that there
// are changes to make. 1 would not do, since everything that breaks ends with it.
const checkNotDoneExit = 2

type checkAnswer int

const (
	// checkUnknown is no answer.
	checkUnknown checkAnswer = iota
	checkDone
	checkNotDone
)

// checkVerdict is what a check says, and the words for it.
type checkVerdict struct {
	answer checkAnswer
	text   string
}

// check runs the check. It changes nothing, so it leaves no records. The error is that
// ctx has ended meanwhile.
func (h *Hook) check(ctx context.Context, attempts int) (checkVerdict, error) {
	out := &hookOutput{mask: h.mask}
	p, err := h.process(h.Hook.Check, attempts, out)
	var end hookEnd
	if err == nil {
		p.timeout = min(h.CheckTimeout, h.Hook.Timeout.D())
		end, err = p.run(ctx)
	}
	if ctx.Err() != nil {
		return checkVerdict{}, fmt.Errorf("run the check of %s: %w", h.title(), context.Cause(ctx))
	}
	switch {
	case err != nil:
		return checkVerdict{text: h.mask.mask(state.Clean(fmt.Sprintf("its check cannot be run: %v", err)))}, nil
	case end.good():
		return checkVerdict{checkDone, "its check says that it is done"}, nil
	case end.Exit == checkNotDoneExit && end.Why == "":
		return checkVerdict{checkNotDone, "its check says that it is not done"}, nil
	}
	text := "its check gives no answer: it " + end.text()
	if last := out.latest(); last != "" {
		text += ": " + last
	}
	return checkVerdict{text: text}, nil
}
