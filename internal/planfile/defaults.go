package planfile

import "time"

// The defaults, of which the schema's tags are a copy that a test holds against them.

func (f *File) setDefaults() {
	f.Capacity = "check"
	f.Upgrade.setDefaults()
	f.Restart.setDefaults()
	f.Cutover.setDefaults()
}

func (u *Upgrade) setDefaults() {
	u.Addons = "required"
	u.Polling = Duration(30 * time.Second)
}

func (r *Restart) setDefaults() {
	r.MaxParallel = 4
	r.Timeout = Duration(20 * time.Minute)
	r.Pending = Duration(5 * time.Minute)
	r.JobTimeout = Duration(time.Hour)
	r.CronJobs = "run"
	r.FinishedJobs = "keep"
	r.FinishedAge = Duration(time.Hour)
	r.Resolve = "kubernetes.default.svc.cluster.local"
}

func (c *Cutover) setDefaults() {
	c.Stages = []int{10, 50, 100}
	c.Hold = Duration(5 * time.Minute)
	c.Patience = Duration(10 * time.Minute)
	c.OnStop = "back"
}

func (h *HTTP) setDefaults() {
	h.Expect = 200
	h.Success = 99
	h.Samples = 200
	h.Over = Duration(30 * time.Second)
	h.Timeout = Duration(5 * time.Second)
	h.AtLeast = defaultAtLeast
}

// defaultAtLeast is HTTP.AtLeast where samples do not ask for fewer.
const defaultAtLeast = 20
