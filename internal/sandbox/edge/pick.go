package edge

import (
	"strconv"
	"strings"
	"sync"
)

// weighted is one choice and its weight; a weight of zero is never chosen while
// another one is above zero.
type weighted struct {
	key    string
	weight int64
}

// picker spreads choices by smooth weighted round robin, the algorithm of nginx:
// over any run of as many picks as the weights sum to, each choice comes up exactly
// as often as its weight says, and as evenly spread as can be. That makes probes
// against the sandbox repeatable, where real DNS and load balancers draw lots.
type picker struct {
	mu     sync.Mutex
	tables map[string]*table
}

type table struct {
	shape   string
	current []int64
}

func newPicker() *picker { return &picker{tables: map[string]*table{}} }

// pick chooses an index of choices, or -1 where there is none to choose. name keeps
// one sequence apart from another; a sequence starts over when its choices change.
func (p *picker) pick(name string, choices []weighted) int {
	var total int64
	var shape strings.Builder
	for _, c := range choices {
		total += c.weight
		shape.WriteString(c.key)
		shape.WriteByte('=')
		shape.WriteString(strconv.FormatInt(c.weight, 10))
		shape.WriteByte(';')
	}
	if total == 0 {
		return -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tables[name]
	if t == nil || t.shape != shape.String() {
		t = &table{shape: shape.String(), current: make([]int64, len(choices))}
		p.tables[name] = t
	}
	best := -1
	for i, c := range choices {
		if c.weight == 0 {
			continue
		}
		t.current[i] += c.weight
		if best < 0 || t.current[i] > t.current[best] {
			best = i
		}
	}
	t.current[best] -= total
	return best
}
