package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Found is the Lease of a cluster as read once.
type Found struct {
	Cluster Cluster
	// Holder has it, or had it last when Held is false; all zero when nobody ever had.
	Holder Holder
	Held   bool

	lease *coordinationv1.Lease
}

// Inspect reads the Lease of a cluster and changes nothing.
func Inspect(ctx context.Context, c Cluster) (*Found, error) {
	l, err := c.Leases.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &Found{Cluster: c}, nil
	}
	if apierrors.IsForbidden(err) {
		return nil, forbidden("read", c.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the lock in cluster %s: %w", c.Name, err)
	}
	h := holderOf(l)
	return &Found{Cluster: c, Holder: h, Held: h.Identity != "", lease: l}, nil
}

// Clear takes the Lease away from its holder, exactly as it was read: ErrMoved when it
// was written since. A holder that lives after all reads by who took it, at its next
// renewal or right before its next change after that, and stops with exit 6.
func (f *Found) Clear(ctx context.Context, by Holder, clk clock.PassiveClock) error {
	if !f.Held {
		return nil
	}
	out := f.lease.DeepCopy()
	at := metav1.NewMicroTime(clk.Now())
	out.Spec.HolderIdentity = nil
	out.Spec.AcquireTime, out.Spec.RenewTime = &at, &at
	// Whoever held it must not take it for a Lease that was free all the time.
	out.Spec.LeaseTransitions = ptr.To(ptr.Deref(out.Spec.LeaseTransitions, 0) + 1)
	by.sign(out)
	_, err := f.Cluster.Leases.Update(ctx, out, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		if got, gerr := f.Cluster.Leases.Get(ctx, Name, metav1.GetOptions{}); gerr == nil && landed(out, got) {
			return nil
		}
		return fmt.Errorf("unlock cluster %s: %w", f.Cluster.Name, ErrMoved)
	case err != nil:
		return fmt.Errorf("unlock cluster %s: %w", f.Cluster.Name, err)
	}
	return nil
}

// Seen is how the Leases of some clusters were at one moment.
type Seen map[string]seen

type seen struct {
	version string
	free    bool
}

// Look reads the Leases before a plan is made of the pair. One that cannot be read is
// left out of what it gives, so that Lock.Undisturbed says no; the error says why. dead
// is Options.Dead.
func Look(ctx context.Context, clusters []Cluster, dead func(Holder) bool) (Seen, error) {
	found, errs := make([]*Found, len(clusters)), make([]error, len(clusters))
	var wg sync.WaitGroup
	for i, c := range clusters {
		wg.Go(func() { found[i], errs[i] = Inspect(ctx, c) })
	}
	wg.Wait()
	out := Seen{}
	for _, f := range found {
		if f == nil {
			continue
		}
		s := seen{free: !f.Held || dead != nil && dead(f.Holder)}
		if f.lease != nil {
			s.version = f.lease.ResourceVersion
		}
		out[f.Cluster.Name] = s
	}
	return out, errors.Join(errs...)
}

// undisturbed is Lock.Undisturbed for one Lease: it was taken on the very version that
// was seen, and nobody held that.
func (c *claim) undisturbed() bool {
	s, ok := c.opt.Seen[c.cluster.Name]
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok && c.taken && s.free && s.version == c.base
}
