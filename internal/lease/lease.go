// Package lease is the lock between machines: a coordination.k8s.io/v1 Lease in every
// existing cluster of a pair, held by at most one process that changes something.
//
// It follows client-go's tools/leaderelection (v0.37) in what makes that safe without
// clocks that agree: every write names the resourceVersion that it was made on, and a
// holder counts as gone when its Lease did not change for a whole term as observed
// here, never because of the times that are written in it. It differs in what follows
// from a renewal that fails: an EKS control plane that rolls cuts renewals off for a
// while, so that is no loss. New changes wait until the Lease is renewed again; only
// another holder read back ends the work (semantics 23).
//
// The Lease has the same name in every cluster, whatever pair a plan file is of: two
// plan files that name the same cluster exclude each other as well.
package lease

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/aws"
)

const (
	// Name and Namespace are those of the Lease in every cluster.
	Name      = "eksbg"
	Namespace = metav1.NamespaceSystem
	// Term is for how long a Lease stands without a renewal; it is renewed at a third.
	Term = 60 * time.Second
)

const (
	renewal = Term / 3
	// sure is the age of the newest renewal up to which changes begin. Nobody else can
	// take the Lease before Term is over, which leaves a change the rest to arrive.
	sure = Term * 2 / 3
	// retry is the pause after a renewal that failed, poll that between two looks at
	// somebody else's Lease.
	retry = Term / 12
	poll  = 2 * time.Second
	// attemptPatience and attemptTime bound one renewal; together with renewal they stay
	// below sure.
	attemptPatience = 10 * time.Second
	attemptTime     = 15 * time.Second
	// patience is how long a change waits for a renewal: as long as calls to AWS are
	// repeated, and longer than a control plane is away while it rolls.
	patience = 10 * time.Minute
	// releaseTime bounds giving the Leases back.
	releaseTime = 5 * time.Second
	// longestTerm bounds the term that somebody else's Lease claims.
	longestTerm = 10 * time.Minute
	// margin is what a request must be off the wire before the Lease is free.
	margin = 2 * time.Second
)

// API is what a Lease is read and written with: the Leases of Namespace
// (CoordinationV1().Leases(Namespace) of client-go).
type API interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Cluster is one cluster to lock. Names are unique within a lock.
type Cluster struct {
	Name   string
	Leases API
}

// Options say what to lock, for whom, and whom to tell.
type Options struct {
	// Clusters are the existing clusters of the pair; they are taken in name order.
	Clusters []Cluster
	Holder   Holder
	Clock    clock.Clock
	// Seen is how the Leases were before the plan was made; see Lock.Undisturbed.
	Seen Seen
	// Dead tells that a holder's process certainly runs no more; it is then not waited
	// for. May be nil. In doubt it must say false.
	Dead func(Holder) bool
	// Waiting hears what is waited for while the lock is being taken, at most once every
	// few seconds; Note what belongs into the journal (a lock taken over, a time without
	// renewals). Both may be nil and are called by several goroutines.
	Waiting, Note func(text string)
	// Lost is called once, when another holder was read back: the work has to be
	// cancelled with that cause. May be nil.
	Lost func(*Lost)
	// Tolerate tells of an error of an API server that the work may begin all the same:
	// the Lease is then tried on in the background and no change is made before it is
	// taken. May be nil.
	Tolerate func(error) bool
}

// Lock is the Leases of a pair, held and renewed until Release. All methods are safe
// for concurrent use.
type Lock struct {
	claims []*claim
	stop   context.CancelFunc
	loops  sync.WaitGroup
	lost   sync.Once
	tell   func(*Lost)
}

// Take takes the Leases of all clusters, in name order, and keeps renewing them. While
// somebody else has one it is watched: renewed means *Held, unchanged for its term
// means taken over, given back means taken. On an error nothing stays taken. The
// renewals outlive ctx, since what an interrupt leaves to do is done under the lock
// too; Release ends them.
func Take(ctx context.Context, opt Options) (*Lock, error) {
	ctx = aws.Unguarded(ctx) // the guard waits for what is sent here
	loops, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &Lock{stop: stop, tell: opt.Lost}
	clusters := slices.SortedStableFunc(slices.Values(opt.Clusters), func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	for _, cl := range clusters {
		c := newClaim(cl, &opt)
		err := c.take(ctx)
		if err != nil && (ctx.Err() != nil || opt.Tolerate == nil || !opt.Tolerate(err)) {
			_ = l.Release(ctx) // the first error is the one to tell
			return nil, err
		}
		if err != nil {
			c.fail(err)
		}
		l.claims = append(l.claims, c)
		l.loops.Go(func() { l.renew(loops, c) })
	}
	return l, nil
}

// renew keeps one Lease until ctx ends or it is lost.
func (l *Lock) renew(ctx context.Context, c *claim) {
	for {
		if !c.pause(ctx) {
			return
		}
		if lost := c.again(aws.WithPatience(ctx, attemptPatience)); lost != nil {
			l.lost.Do(func() {
				if l.tell != nil {
					l.tell(lost)
				}
			})
			return
		}
	}
}

// Guard returns nil when a change may begin: every Lease is ours and freshly renewed.
// When a renewal is overdue it waits for the next one that succeeds, and says so. It
// returns *Lost when another holder was read, the error of credentials that are over,
// an *aws.GaveUpError after minutes without a renewal, and the cause of ctx when that
// ends first. ctx does not count while the lock is fresh, nor once it is lost.
func (l *Lock) Guard(ctx context.Context, waiting func(text string)) error {
	if lost := l.Lost(); lost != nil {
		return lost
	}
	for _, c := range l.claims {
		if err := c.guard(ctx, waiting); err != nil {
			return err
		}
	}
	return nil
}

// Allow is Guard for one request: it also says for how long the request may be on the
// wire, which is until somebody else could take the first of the Leases. It fits
// aws.WithGuard.
func (l *Lock) Allow(ctx context.Context) (time.Duration, error) {
	if err := l.Guard(ctx, nil); err != nil {
		return 0, err
	}
	left := Term
	for _, c := range l.claims {
		left = min(left, c.left())
	}
	return max(left-margin, 0), nil
}

// Lost is set once another holder was read back.
func (l *Lock) Lost() *Lost {
	for _, c := range l.claims {
		if lost := c.isLost(); lost != nil {
			return lost
		}
	}
	return nil
}

// Undisturbed tells whether nobody else can have held any of the Leases between the
// look that gave Options.Seen and now: what was planned in between still stands as far
// as other runs are concerned.
func (l *Lock) Undisturbed() bool {
	for _, c := range l.claims {
		if !c.undisturbed() {
			return false
		}
	}
	return true
}

// Release ends the renewals and gives the Leases back, within seconds and whatever has
// become of ctx. A Lease that could not be given back is free after its term; the error
// says which. Releasing twice is nothing.
func (l *Lock) Release(ctx context.Context) error {
	l.stop()
	ctx, cancel := context.WithTimeout(aws.WithPatience(context.WithoutCancel(aws.Unguarded(ctx)), releaseTime), releaseTime)
	defer cancel()
	ended := make(chan struct{})
	go func() { // a renewal on the wire to a server that is silent ends by itself, later
		l.loops.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	errs := make([]error, len(l.claims))
	var wg sync.WaitGroup
	for i, c := range l.claims {
		wg.Go(func() { errs[i] = c.release(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
