package cluster

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// loading is for how long after an API server could not be reached its 403 is no answer:
// one that has just started serves before its RBAC rules are loaded, and until then it
// denies everything to everybody outside system:masters, in the words of a real denial.
// Between two attempts to reach it lie 20 s at most (aws.Backoff).
const loading = 45 * time.Second

// comeback remembers when an API server was last out of reach.
type comeback struct {
	clk clock.PassiveClock

	mu   sync.Mutex
	away time.Time
}

// see takes note of what came of an attempt that failed for now. Answers are left out,
// 5xx too: a webhook that fails, or an aggregated API that is away, gives them for ever.
func (c *comeback) see(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	c.away = c.clk.Now()
	c.mu.Unlock()
}

// recent tells whether the API server was out of reach a moment ago.
func (c *comeback) recent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.away.IsZero() && c.clk.Since(c.away) < loading
}

// errLoading is a denial that is none yet.
var errLoading = errors.New("HTTP 403 from an API server that was away until a moment ago")

// doubts gives errLoading for a denial that is to be asked for again, nil for all else.
// Since is when the same request was first denied, or the zero time; it is set. One that
// goes on being denied is believed, whatever happens to others.
func (c *comeback) doubts(resp *http.Response, err error, since *time.Time) error {
	if err != nil || resp.StatusCode != http.StatusForbidden || !c.recent() {
		return nil
	}
	if since.IsZero() {
		*since = c.clk.Now()
	}
	if c.clk.Since(*since) >= loading {
		return nil
	}
	return errLoading
}
