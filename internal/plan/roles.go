package plan

import (
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/state"
)

// Active reads which side serves the traffic: the one with 100 % on every traffic
// target (semantics 1). Anything else is refused with exit 3 and the weights,
// unless want says which side counts as active. What the weights say outright, want
// cannot overrule: a side that gets nothing does not serve.
func Active(traffic []state.Share, want state.Side) (state.Side, error) {
	if want != "" {
		for _, s := range traffic {
			if s.Percent(want) > 0 {
				return want, nil
			}
		}
		return "", &state.Stop{Code: state.ExitBlocked,
			Why:  fmt.Sprintf("--active %s: %s gets no traffic at all\n%s\nnothing has been changed", want, want, weights(traffic)),
			Cure: "leave --active out, or name " + string(want.Other())}
	}
	for _, s := range traffic {
		if s.Sum() == 0 {
			return "", &state.Stop{Code: state.ExitBlocked,
				Why:  fmt.Sprintf("the weights of the pair on %s add up to 0: no side is active there\n%s\nnothing has been changed", s.Target, weights(traffic)),
				Cure: "give the serving side its weight back first; Route 53 treats all zero as all equal, so this is not off"}
		}
	}
	for _, side := range state.Sides {
		whole := len(traffic) > 0
		for _, s := range traffic {
			whole = whole && s.Percent(side) == 100
		}
		if whole {
			return side, nil
		}
	}
	return "", &state.Stop{Code: state.ExitBlocked,
		Why: "the traffic is split, and no journal of an open run explains it\n" + weights(traffic) + "\nnothing has been changed",
		Cure: "if a run was under way, use its journal (--state FILE)\n" +
			"if you know which side serves, name it: --active blue or --active green"}
}

func weights(traffic []state.Share) string {
	lines := make([]string, 0, len(traffic))
	for _, s := range traffic {
		lines = append(lines, fmt.Sprintf("%s: blue %d, green %d", s.Target, s.Blue, s.Green))
	}
	return strings.Join(lines, "\n")
}

// gets tells whether a side gets any of the traffic. A target whose weights add up to 0
// counts: Route 53 answers with all of its records then.
func gets(traffic []state.Share, side state.Side) bool {
	for _, s := range traffic {
		if s.Percent(side) > 0 || s.Sum() == 0 {
			return true
		}
	}
	return false
}
