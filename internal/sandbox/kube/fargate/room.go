package fargate

import (
	"container/list"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// line is a queue of pods of one profile, first come first.
type line struct {
	list.List        // of podKey
	lacks     string // what they wait for
}

// waiter is a pod's place in a line.
type waiter struct {
	*list.Element
	in *line
}

// allocate gives a pod its room and its times, in the order in which the pods of a
// profile came.
func (f *Fleet) allocate(k podKey, pod *corev1.Pod) (*slot, string) {
	f.room.Lock()
	defer f.room.Unlock()
	profile := pod.Labels[LabelProfile]
	l := f.lines[profile]
	if l == nil {
		l = &line{}
		f.lines[profile] = l
	}
	if head := l.Front(); head != nil && head.Value.(podKey) != k {
		f.wait(k, l)
		return nil, l.lacks
	}
	cpu, _ := size(pod)
	pl, lacks := f.place(profile, cpu)
	if lacks != "" {
		l.lacks = lacks
		f.wait(k, l)
		return nil, lacks
	}
	f.unwait(k)
	now, d := f.api.Clock(), f.startup()
	if !f.hurried() {
		now = now.Add(f.opts.Account.launch(now))
	}
	s := &slot{place: pl, node: f.nodeName(pl), profile: profile, cpu: cpu, bindAt: now.Add(d * 3 / 4), runAt: now.Add(d)}
	f.slots[k.uid] = s
	f.count++
	return s, ""
}

// place takes an address and the account's vCPUs for a pod, or says what lacks.
func (f *Fleet) place(profile string, cpu int64) (place, string) {
	if f.opts.MaxNodes > 0 && f.count >= f.opts.MaxNodes {
		return place{}, noCapacity
	}
	pl, ok := f.pool.take(f.subnetsOf(profile)...)
	if !ok {
		return place{}, noAddresses
	}
	if !f.opts.Account.take(cpu) {
		pl.give()
		return place{}, noVCPU
	}
	return pl, ""
}

func (f *Fleet) subnetsOf(profile string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.profiles {
		if p.Name == profile {
			return p.Subnets
		}
	}
	return nil
}

const (
	noCapacity = "Fargate capacity is unavailable at this time. Please try again later or in a different availability zone"
	// As the fargate-scheduler said it in terraform-aws-modules/terraform-aws-eks#1758.
	noVCPU      = "Your AWS account has reached the limit on the number of Fargate pods it can run concurrently"
	noAddresses = "Pod provisioning failed: the subnets of the Fargate profile have no available IP addresses"
)

// startup draws a start-up delay.
func (f *Fleet) startup() time.Duration {
	d := f.opts.Startup
	if j := int64(f.opts.Jitter); j > 0 {
		f.api.Draw(func(r *rand.Rand) { d += time.Duration(r.Int64N(2*j+1) - j) })
	}
	return max(d, 0)
}

func (f *Fleet) wait(k podKey, l *line) {
	if _, ok := f.waits[k.uid]; !ok {
		f.waits[k.uid] = waiter{l.PushBack(k), l}
	}
}

// unwait takes a pod out of the line and lets the next one try.
func (f *Fleet) unwait(k podKey) {
	if w, ok := f.waits[k.uid]; ok {
		w.in.Remove(w.Element)
		delete(f.waits, k.uid)
		f.wake()
	}
}

// wake lets the first of each line try again.
func (f *Fleet) wake() {
	for _, profile := range slices.Sorted(maps.Keys(f.lines)) {
		l := f.lines[profile]
		if head := l.Front(); head != nil {
			f.queue.Add(head.Value.(podKey))
		}
	}
}
