package cutover

import (
	"fmt"

	"github.com/eksbg/eksbg/internal/state"
)

// The highest weights that the APIs take: Route 53 0 to 255 (Developer Guide,
// "Values specific for weighted records"), ELBv2 0 to 999 (TargetGroupTuple.Weight).
const (
	maxRecordWeight = 255
	maxGroupWeight  = 999
)

// plainSum is the pair's weight sum where its own cannot express a per cent and
// nobody else's share depends on it.
const plainSum = 100

// pair is two weights that belong together and what bounds them.
type pair struct {
	origin, dest int
	// others is true when members that are not of the pair share the traffic with it:
	// the sum is the pair's part of the whole then, and must stay.
	others bool
	// limit is the highest weight that the API takes.
	limit int
}

func (p pair) sum() int { return p.origin + p.dest }

// at gives the pair with the destination at a per cent of the pair's own sum. The sum
// is kept where it can express the per cent. Where it cannot, it becomes 100, unless
// other members depend on it: then the destination's part is rounded, and refused
// when that would turn a part of the traffic into none or all of it.
func (p pair) at(percent int) (pair, error) {
	sum := p.sum()
	switch {
	case percent < 0 || percent > 100:
		return p, fmt.Errorf("%d %% is no share of traffic", percent)
	case sum == 0:
		return p, fmt.Errorf("both weights are 0, so the pair has no traffic to divide: give the active side its weight back")
	}
	out := p
	if sum*percent%100 == 0 {
		out.dest = sum * percent / 100
		out.origin = sum - out.dest
		if out.fits() {
			return out, nil
		}
	}
	if !p.others {
		out.dest, out.origin = percent*plainSum/100, plainSum-percent*plainSum/100
		return out, nil
	}
	out.dest = (sum*percent + 50) / 100
	out.origin = sum - out.dest
	if percent > 0 && percent < 100 && (out.dest == 0 || out.origin == 0) {
		return p, fmt.Errorf("a weight sum of %d, shared with other members, cannot express %d %%: "+
			"raise the weights of all members by the same factor, or take this stage out", sum, percent)
	}
	if !out.fits() {
		return p, fmt.Errorf("a weight sum of %d, shared with other members, needs a weight above %d for %d %%: "+
			"lower the weights of all members by the same factor", sum, p.limit, percent)
	}
	return out, nil
}

func (p pair) fits() bool { return p.dest <= p.limit && p.origin <= p.limit }

// like gives the pair in the proportion of a recorded one. Where nobody else depends
// on the sum the recorded weights are taken as they were.
func (p pair) like(origin, dest int) (pair, error) {
	out := p
	if !p.others || p.sum() == 0 || p.sum() == origin+dest {
		out.origin, out.dest = origin, dest
		return out, nil
	}
	whole := origin + dest
	if whole == 0 {
		return p, fmt.Errorf("the recorded weights are 0 on both sides")
	}
	out.dest = (p.sum()*dest + whole/2) / whole
	out.origin = p.sum() - out.dest
	if (dest > 0) != (out.dest > 0) || (origin > 0) != (out.origin > 0) || !out.fits() {
		return p, fmt.Errorf("a weight sum of %d, shared with other members, cannot express the recorded %d to %d", p.sum(), origin, dest)
	}
	return out, nil
}

// reached tells whether the destination has at least a per cent: by proportion, or
// because the pair is where rounding to that per cent puts it.
func (p pair) reached(percent int) bool {
	sum := p.sum()
	if sum == 0 {
		return false
	}
	if p.dest*100 >= percent*sum {
		return true
	}
	want, err := p.at(percent)
	return err == nil && want.dest == p.dest && want.origin == p.origin
}

// pairOf orders a share's weights by the roles of the run.
func pairOf(s state.Share, dest state.Side) pair {
	return pair{origin: s.Of(dest.Other()), dest: s.Of(dest)}
}

// shareOf is the reverse of pairOf.
func (p pair) shareOf(target string, dest state.Side) state.Share {
	s := state.Share{Target: target, Blue: p.origin, Green: p.dest}
	if dest == state.Blue {
		s.Blue, s.Green = p.dest, p.origin
	}
	return s
}

// sameProportion tells whether two shares divide the traffic alike.
func sameProportion(a, b state.Share) bool {
	if a.Sum() == 0 || b.Sum() == 0 {
		return a.Sum() == b.Sum()
	}
	return a.Blue*b.Sum() == b.Blue*a.Sum()
}

// of gives the weight of a side.
func (p pair) of(side, dest state.Side) int {
	if side == dest {
		return p.dest
	}
	return p.origin
}
