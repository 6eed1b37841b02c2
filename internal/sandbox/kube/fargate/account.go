package fargate

import (
	"math"
	"sync"
	"time"
)

// Quota is what an AWS account may run on Fargate in a region; 0 bounds nothing.
type Quota struct {
	// VCPU is the quota L-3032A538, over all clusters of the account.
	VCPU float64
	// Burst is how many pods start at once, PerSecond how many then each second
	// ("AWS Fargate throttling quotas" in the ECS developer guide).
	Burst, PerSecond float64
}

// Account is the Fargate of one AWS account: the fleets of its clusters share it. A nil
// Account bounds nothing.
type Account struct {
	mu     sync.Mutex
	quota  Quota
	used   int64 // thousandths of a vCPU
	tokens float64
	filled time.Time
	rouse  []func()
}

// NewAccount makes an account that runs nothing yet.
func NewAccount(q Quota) *Account { return &Account{quota: q, tokens: q.Burst} }

// VCPU is how many vCPUs run at this moment.
func (a *Account) VCPU() float64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(a.used) / 1000
}

// join has a fleet told when something became free.
func (a *Account) join(rouse func()) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rouse = append(a.rouse, rouse)
}

// take counts thousandths of a vCPU as used; false when the quota has no room for them.
func (a *Account) take(milli int64) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quota.VCPU > 0 && float64(a.used+milli) > a.quota.VCPU*1000 {
		return false
	}
	a.used += milli
	return true
}

// give takes them back, and lets every fleet try what waits.
func (a *Account) give(milli int64) {
	if a == nil || milli == 0 {
		return
	}
	a.mu.Lock()
	a.used -= milli
	rouse := a.rouse
	a.mu.Unlock()
	for _, f := range rouse {
		f()
	}
}

// launch takes a place in the line of pods to start and says how long it is.
func (a *Account) launch(now time.Time) time.Duration {
	if a == nil || a.quota.Burst <= 0 || a.quota.PerSecond <= 0 {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.filled.IsZero() {
		a.tokens = math.Min(a.quota.Burst, a.tokens+now.Sub(a.filled).Seconds()*a.quota.PerSecond)
	}
	a.filled = now
	a.tokens--
	if a.tokens >= 0 {
		return 0
	}
	return time.Duration(-a.tokens / a.quota.PerSecond * float64(time.Second))
}
