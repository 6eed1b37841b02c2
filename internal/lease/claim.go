package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/aws"
)

// claim is the Lease of one cluster as seen from here.
type claim struct {
	cluster Cluster
	opt     *Options
	kick    chan struct{}

	mu sync.Mutex
	// lease is it as last written; taken tells that it has been ours.
	lease *coordinationv1.Lease
	taken bool
	// base is the resourceVersion on which it was taken; empty when it was created.
	base string
	// renewed is when the newest renewal was sent, by the wall clock: a machine that
	// slept must see that time has passed.
	renewed  time.Time
	failing  error
	since    time.Time // without a renewal, while failing
	lost     *Lost
	released bool
	changed  chan struct{}
}

func newClaim(cl Cluster, opt *Options) *claim {
	return &claim{cluster: cl, opt: opt, kick: make(chan struct{}, 1), changed: make(chan struct{})}
}

// mark is what changes whenever a holder writes its Lease.
type mark struct {
	uid         types.UID
	identity    string
	renewed     int64
	transitions int32
}

func markOf(l *coordinationv1.Lease) mark {
	m := mark{uid: l.UID, identity: ptr.Deref(l.Spec.HolderIdentity, ""), transitions: ptr.Deref(l.Spec.LeaseTransitions, 0)}
	if l.Spec.RenewTime != nil {
		m.renewed = l.Spec.RenewTime.UnixMicro()
	}
	return m
}

// foreign says that somebody else has the Lease, or had it since it was ours.
type foreign struct{ lease *coordinationv1.Lease }

func (f *foreign) Error() string { return "held by " + holderOf(f.lease).String() }

// mostTries bounds how often a write is tried on a Lease that others keep writing.
const mostTries = 10

// try makes the Lease ours, anew or again, or returns *foreign. over is the mark of a
// holder who may be taken over.
func (c *claim) try(ctx context.Context, over mark) error {
	c.mu.Lock()
	lease := c.lease
	c.mu.Unlock()
	var before, out *coordinationv1.Lease // of the newest write
	for range mostTries {
		if lease == nil {
			got, err := c.cluster.Leases.Get(ctx, Name, metav1.GetOptions{})
			switch {
			case err == nil && landed(out, got):
				return c.keep(got, out.Spec.RenewTime.Time, before, nil)
			case err != nil && !apierrors.IsNotFound(err):
				return err
			case err == nil:
				lease = got
			}
		}
		if lease != nil && !c.mayTake(lease, over) {
			return &foreign{lease}
		}
		sent := c.now()
		before, out = lease, c.ours(lease, sent)
		written, err := c.write(ctx, before, out)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			lease = nil
			continue
		}
		return c.keep(written, sent, before, err)
	}
	return unsettled(c.cluster.Name)
}

// write sends a Lease that was made on before; nil is none.
func (c *claim) write(ctx context.Context, before, out *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if before == nil {
		return c.cluster.Leases.Create(ctx, out, metav1.CreateOptions{})
	}
	return c.cluster.Leases.Update(ctx, out, metav1.UpdateOptions{})
}

// landed tells whether a write that was answered with a conflict is what was read back
// after it: its answer was lost, and the one that came is that of its repetition.
func landed(sent, got *coordinationv1.Lease) bool {
	if sent == nil {
		return false
	}
	s, g := markOf(sent), markOf(got)
	return s.identity == g.identity && s.renewed == g.renewed && s.transitions == g.transitions
}

// mayTake tells whether a Lease may be written as ours. One that was ours and has been
// free since is ours again unless somebody held it in between.
func (c *claim) mayTake(l *coordinationv1.Lease, over mark) bool {
	m := markOf(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.identity == c.opt.Holder.Identity:
		return true
	case c.taken:
		was := markOf(c.lease)
		return m.identity == "" && m.uid == was.uid && m.transitions == was.transitions
	}
	return m.identity == "" || m == over
}

// ours is a Lease as we write it: one that others held is begun, ours is renewed.
func (c *claim) ours(from *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: Namespace}}
	if from != nil {
		out = from.DeepCopy()
	}
	at := metav1.NewMicroTime(now)
	if ptr.Deref(out.Spec.HolderIdentity, "") != c.opt.Holder.Identity {
		out.Spec.AcquireTime = &at
		if from != nil {
			out.Spec.LeaseTransitions = ptr.To(ptr.Deref(from.Spec.LeaseTransitions, 0) + 1)
		}
	}
	out.Spec.HolderIdentity = ptr.To(c.opt.Holder.Identity)
	out.Spec.LeaseDurationSeconds = ptr.To(int32(Term / time.Second))
	out.Spec.RenewTime = &at
	c.opt.Holder.sign(out)
	return out
}

// keep remembers a write that went through; before is what it was made on.
func (c *claim) keep(written *coordinationv1.Lease, sent time.Time, before *coordinationv1.Lease, err error) error {
	if err != nil {
		return err
	}
	c.mu.Lock()
	again, gap, was := c.taken, c.since, c.failing
	c.mu.Unlock()
	switch { // said before the changes that waited for it go on
	case again && (before == nil || ptr.Deref(before.Spec.HolderIdentity, "") == ""):
		c.note(fmt.Sprintf("the lock in cluster %s had been removed and was taken again; nobody else held it", c.cluster.Name))
	case again && was != nil:
		c.note(fmt.Sprintf("the lock in cluster %s is renewed again after %s without (%s)", c.cluster.Name,
			sent.Sub(gap).Round(time.Second), reason(was)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lease, c.taken, c.renewed, c.failing, c.since = written, true, sent, nil, time.Time{}
	if !again && before != nil {
		c.base = before.ResourceVersion
	}
	c.wake()
	return nil
}

// again renews the Lease once, or goes on trying to take one that never was ours.
func (c *claim) again(ctx context.Context) *Lost {
	c.mu.Lock()
	taken := c.taken
	c.mu.Unlock()
	var err error
	if taken {
		actx, cancel := context.WithTimeout(ctx, attemptTime)
		err = c.try(actx, mark{})
		cancel()
	} else {
		err = c.take(ctx)
	}
	var f *foreign
	var held *Held
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return c.lose(holderOf(f.lease))
	case errors.As(err, &held):
		return c.lose(held.Holder)
	}
	c.fail(err)
	return nil
}

func (c *claim) lose(to Holder) *Lost {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = &Lost{Cluster: c.cluster.Name, Holder: to}
	c.wake()
	return c.lost
}

// fail remembers that a renewal did not go through.
func (c *claim) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing == nil {
		c.since = c.renewed
		if !c.taken {
			c.since = c.now()
		}
	}
	c.failing = err
	c.wake()
}

// wake tells everybody who waits that something is new; c.mu is held.
func (c *claim) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// pause waits until the next renewal is due; false when ctx ended.
func (c *claim) pause(ctx context.Context) bool {
	c.mu.Lock()
	d := renewal
	if c.failing != nil {
		d = retry
	}
	c.mu.Unlock()
	t := c.opt.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c.kick:
	case <-t.C():
	}
	return ctx.Err() == nil
}

// guard is Lock.Guard for one Lease.
func (c *claim) guard(ctx context.Context, waiting func(string)) error {
	began := c.now()
	for {
		c.mu.Lock()
		lost, failing, since, released, changed := c.lost, c.failing, c.since, c.released, c.changed
		age := c.now().Sub(c.renewed)
		c.mu.Unlock()
		switch {
		case lost != nil:
			return lost
		case released:
			return errReleased
		case failing == nil && age >= 0 && age < sure:
			return nil
		case failing == nil: // the machine slept, or its clock was set
			select {
			case c.kick <- struct{}{}:
			default:
			}
		case aws.IsExpired(failing), apierrors.IsUnauthorized(failing):
			return fmt.Errorf("renew the lock in cluster %s: %w", c.cluster.Name, failing)
		case c.now().Sub(began) >= patience:
			return &aws.GaveUpError{Call: "renew the lock in cluster " + c.cluster.Name, Attempts: 1 + int(c.now().Sub(since)/retry),
				After: c.now().Sub(since), Err: failing}
		}
		if waiting != nil && failing != nil {
			waiting(fmt.Sprintf("no change before the lock in cluster %s is renewed again; it was not since %s: %s",
				c.cluster.Name, since.UTC().Format("15:04:05"), reason(failing)))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// left is for how long nobody else can take the Lease.
func (c *claim) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Term - c.now().Sub(c.renewed)
}

func (c *claim) isLost() *Lost {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// release gives the Lease back when it is ours.
func (c *claim) release(ctx context.Context) error {
	c.mu.Lock()
	lease, skip := c.lease, c.released || !c.taken || c.lost != nil
	c.released = true
	c.wake()
	c.mu.Unlock()
	if skip {
		return nil
	}
	var err error
	for range mostTries {
		if lease == nil {
			lease, err = c.cluster.Leases.Get(ctx, Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				break
			}
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") != c.opt.Holder.Identity {
			return nil
		}
		out := lease.DeepCopy()
		out.Spec.HolderIdentity = nil
		if _, err = c.cluster.Leases.Update(ctx, out, metav1.UpdateOptions{}); err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			break
		}
		lease = nil
	}
	return fmt.Errorf("give back the lock in cluster %s: %w; it is free after %s", c.cluster.Name, err, Term)
}

// now is the wall clock, without the monotonic reading that stands still while a
// machine sleeps.
func (c *claim) now() time.Time { return c.opt.Clock.Now().Round(0) }

func (c *claim) note(text string) {
	if c.opt.Note != nil {
		c.opt.Note(text)
	}
}
