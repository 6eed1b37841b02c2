package cutover

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

func TestWeightsOfAPair(t *testing.T) {
	tests := []struct {
		name    string
		in      pair
		percent int
		want    string
	}{
		{"sum of 100", pair{origin: 100, limit: 255}, 10, "90/10"},
		{"sum of 200 is kept", pair{origin: 200, limit: 255}, 50, "100/100"},
		{"sum of 200 with others", pair{origin: 150, dest: 50, others: true, limit: 255}, 10, "180/20"},
		{"sum of 1 becomes 100", pair{origin: 1, limit: 255}, 10, "90/10"},
		{"sum of 1 is kept at 0", pair{origin: 1, limit: 255}, 0, "1/0"},
		{"sum of 1 is kept at 100", pair{origin: 1, limit: 255}, 100, "0/1"},
		{"sum of 1 with others", pair{origin: 1, others: true, limit: 255}, 10, "refused"},
		{"sum of 3 with others rounds", pair{origin: 3, others: true, limit: 255}, 50, "1/2"},
		{"sum of 3 with others, too little", pair{origin: 3, others: true, limit: 255}, 10, "refused"},
		{"sum of 3 with others, too much", pair{origin: 3, others: true, limit: 255}, 90, "refused"},
		{"sum beyond one weight", pair{origin: 255, dest: 255, limit: 255}, 100, "0/100"},
		{"sum beyond one weight, with others", pair{origin: 255, dest: 255, others: true, limit: 255}, 100, "refused"},
		{"sum of 0", pair{limit: 255}, 10, "refused"},
		{"no per cent", pair{origin: 1, limit: 255}, 101, "refused"},
		{"ALB", pair{origin: 999, dest: 1, limit: 999}, 10, "900/100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := "refused"
			if p, err := tt.in.at(tt.percent); err == nil {
				got = pairText(p)
			}
			if got != tt.want {
				t.Errorf("%s at %d %%: %s, want %s", pairText(tt.in), tt.percent, got, tt.want)
			}
		})
	}
}

func pairText(p pair) string { return fmt.Sprintf("%d/%d", p.origin, p.dest) }

func drawPair(rt *rapid.T) pair {
	limit := rapid.SampledFrom([]int{maxRecordWeight, maxGroupWeight}).Draw(rt, "limit")
	return pair{origin: rapid.IntRange(0, limit).Draw(rt, "origin"), dest: rapid.IntRange(0, limit).Draw(rt, "dest"),
		others: rapid.Bool().Draw(rt, "others"), limit: limit}
}

func TestWeightsProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		percent := rapid.IntRange(0, 100).Draw(rt, "percent")
		got, err := p.at(percent)
		if err != nil {
			if p.sum() > 0 && !p.others {
				rt.Fatalf("%s refused without need: %v", pairText(p), err)
			}
			if got != p {
				rt.Fatalf("refused, and changed all the same")
			}
			return
		}
		switch {
		case got.sum() == 0:
			rt.Fatalf("both weights are 0")
		case got.origin < 0 || got.dest < 0 || got.origin > p.limit || got.dest > p.limit:
			rt.Fatalf("%s is out of bounds", pairText(got))
		case p.others && got.sum() != p.sum():
			rt.Fatalf("the sum went from %d to %d, and others depend on it", p.sum(), got.sum())
		case percent == 0 && got.dest != 0, percent == 100 && got.origin != 0:
			rt.Fatalf("%d %% gives %s", percent, pairText(got))
		case percent > 0 && percent < 100 && (got.dest == 0 || got.origin == 0):
			rt.Fatalf("%d %% gives all or nothing: %s", percent, pairText(got))
		case !p.others && got.dest*100 != percent*got.sum():
			rt.Fatalf("%d %% gives %s, which is not exact", percent, pairText(got))
		}
		if !got.reached(percent) {
			rt.Fatalf("%s does not count as %d %%", pairText(got), percent)
		}
		again, err := got.at(percent)
		if err != nil || again != got {
			rt.Fatalf("%d %% again gives %s after %s (%v)", percent, pairText(again), pairText(got), err)
		}
		// The share survives its way through sides and back.
		for _, dest := range state.Sides {
			s := got.shareOf("x", dest)
			if back := pairOf(s, dest); back.origin != got.origin || back.dest != got.dest {
				rt.Fatalf("%s became %+v", pairText(got), back)
			}
		}
	})
}

// However far the traffic went, the recorded weights come back.
func TestWeightsComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		start := drawPair(rt)
		if start.sum() == 0 {
			return
		}
		now := start
		for _, percent := range rapid.SliceOfN(rapid.IntRange(0, 100), 0, 4).Draw(rt, "stages") {
			if next, err := now.at(percent); err == nil {
				now = next
			}
		}
		back, err := now.like(start.origin, start.dest)
		if err != nil || back != start {
			rt.Fatalf("from %s over %s back to %s (%v)", pairText(start), pairText(now), pairText(back), err)
		}
	})
}
