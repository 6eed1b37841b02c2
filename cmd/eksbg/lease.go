package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"syscall"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// leases are the clusters of the pair that exist, for the lock. lax gives a cluster
// whose API server does not answer as well: it is tried again with every call.
func (s *session) leases(ctx context.Context, lax bool) ([]lease.Cluster, error) {
	there, errs := make([]bool, len(state.Sides)), make([]error, len(state.Sides))
	var wg sync.WaitGroup
	for i, side := range state.Sides {
		wg.Go(func() {
			_, err := s.open(ctx, side)
			there[i] = !aws.IsNotFound(err)
			if there[i] && !lax {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var out []lease.Cluster
	for i, side := range state.Sides {
		if there[i] {
			out = append(out, s.lockOf(side))
		}
	}
	return out, nil
}

// lockOf is one side's cluster, for the lock.
func (s *session) lockOf(side state.Side) lease.Cluster {
	names := map[state.Side]string{state.Blue: s.file.Clusters.Blue.Name, state.Green: s.file.Clusters.Green.Name}
	name := names[side]
	if names[state.Blue] == names[state.Green] { // in two accounts
		name += " (" + string(side) + ")"
	}
	return lease.Cluster{Name: name, Leases: &sideLeases{s, side}}
}

// sideLeases are the Leases of one side's cluster, which is reached when first needed.
type sideLeases struct {
	s    *session
	side state.Side
}

func (l *sideLeases) api(ctx context.Context) (lease.API, error) {
	c, err := l.s.open(ctx, l.side)
	if err != nil {
		return nil, err
	}
	return c.Kubernetes().CoordinationV1().Leases(lease.Namespace), nil
}

// Get reads a Lease.
func (l *sideLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	api, err := l.api(ctx)
	if err != nil {
		return nil, err
	}
	return api.Get(ctx, name, o)
}

// Create makes a Lease.
func (l *sideLeases) Create(ctx context.Context, n *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	api, err := l.api(ctx)
	if err != nil {
		return nil, err
	}
	return api.Create(ctx, n, o)
}

// Update writes a Lease.
func (l *sideLeases) Update(ctx context.Context, n *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	api, err := l.api(ctx)
	if err != nil {
		return nil, err
	}
	return api.Update(ctx, n, o)
}

// holder is this process as the holder of locks.
func (s *session) holder(ctx context.Context, runID, operation string) (lease.Holder, error) {
	who := me(s.arn(ctx))
	id, err := lease.NewIdentity(who, rand.Reader)
	return lease.Holder{Identity: id, Who: who, Machine: machine(), Pair: s.file.Name, Run: runID, Operation: operation}, err
}

// goneProcess tells that a holder was a process of this very machine, and that it runs
// no more. In doubt it says no, and the lock's term is waited for.
func goneProcess(h lease.Holder) bool {
	here := machine()
	if here == "" || h.Machine != here || h.Who.PID <= 0 {
		return false
	}
	if h.Who.PID == os.Getpid() { // ours now, so not that process's any more
		return true
	}
	p, err := os.FindProcess(h.Who.PID)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) || isZombie(h.Who.PID)
}

// seeLocks looks who has the locks before the pair is read for a plan, so that a plan
// that another run made old is noticed.
func (a *applied) seeLocks(ctx context.Context) error {
	ctx = run.Reading(ctx)
	s := a.session
	if err := s.connect(ctx); err != nil {
		return s.explain(ctx, err)
	}
	clusters, err := s.leases(ctx, false)
	if err != nil {
		return s.explain(ctx, err)
	}
	if a.seen, err = lease.Look(ctx, clusters, goneProcess); aws.IsUnavailable(err) {
		return s.explain(ctx, err) // the plan would wait as long for it
	}
	return nil
}

// takeLock takes the locks of the pair for a run. Of a run that has changed something
// its records are given: endpoints that are away are waited for then, and traffic that
// is on its way is watched without them.
func (a *applied) takeLock(ctx context.Context, runID string, records []state.Record) error {
	changed, moving := len(state.Changed(records)) > 0, run.Moving(records)
	tctx := ctx
	if !changed || moving {
		tctx = run.Reading(ctx)
	}
	s := a.session
	clusters, err := s.leases(tctx, moving)
	if err != nil {
		return a.lockError(ctx, err, changed)
	}
	holder, err := s.holder(tctx, runID, a.operation())
	if err != nil {
		return err
	}
	a.lock, err = lease.Take(tctx, lease.Options{
		Clusters: clusters, Holder: holder, Clock: s.clock, Seen: a.seen, Dead: goneProcess,
		Waiting:  s.logged,
		Note:     a.note,
		Lost:     func(lost *lease.Lost) { a.cancel(lost) },
		Tolerate: func(err error) bool { return moving && tolerable(err) },
	})
	if err != nil {
		return a.lockError(ctx, err, changed)
	}
	return nil
}

// tolerable tells whether traffic that is on its way is held and judged without the
// lock: nobody else was read in its place.
func tolerable(err error) bool {
	var held *lease.Held
	return !errors.As(err, &held) && !aws.IsExpired(err)
}

func (a *applied) lockError(ctx context.Context, err error, changed bool) error {
	var stop *state.Stop
	if ctx.Err() == nil && changed && aws.IsUnavailable(err) && !errors.As(err, &stop) {
		return &state.Stop{Code: state.ExitResumable, Why: "the lock could not be taken, since an endpoint did not answer for minutes", Cause: err,
			Cure: "check the network and the endpoint, then run the same command again"}
	}
	return a.session.explain(ctx, err)
}

// alsoMissing adds to a refused lock what else of the plan would be refused: the first
// step, which asks for all of it at once, comes after the lock.
func (a *applied) alsoMissing(ctx context.Context, p *state.Plan, err error) error {
	var stop *state.Stop
	if !errors.As(err, &stop) || stop.Code != state.ExitBlocked || !notAllowed(stop.Cause) {
		return err
	}
	gaps, gerr := plan.AccessGaps(run.Reading(ctx), a.file, p, a.session.kubernetes)
	if gerr != nil {
		return err // the refusal stands without them
	}
	more := *stop
	more.Why, more.Cause = stop.Error(), nil
	for _, g := range gaps {
		more.Why += "\n" + g.Text
	}
	return &more
}

// note keeps what the lock has to say for the journal until there is one.
func (a *applied) note(text string) {
	a.noteMu.Lock()
	defer a.noteMu.Unlock()
	if a.journal == nil {
		a.notes = append(a.notes, text)
		return
	}
	_, _ = a.journal.Append(state.Record{Kind: state.RecordNote, Text: text}) // a broken journal shows at the next record that counts
}

// use makes j the journal of the run, and writes into it what was to be noted before.
func (a *applied) use(j *state.Journal) {
	a.noteMu.Lock()
	a.journal = j
	notes := a.notes
	a.notes = nil
	a.noteMu.Unlock()
	for _, text := range notes {
		a.o.say(text)
		a.note(text)
	}
}

// unlock gives the locks back.
func (a *applied) unlock(ctx context.Context) {
	if a.lock == nil {
		return
	}
	if err := a.lock.Release(ctx); err != nil {
		a.o.say(err.Error())
	}
}

// underLock is the journal of a run as its steps get it: intents are written under the
// lock alone.
type underLock struct {
	*state.Journal
	ctx  context.Context
	lock *lease.Lock
}

// Recorder is that of the step, guarded.
func (u *underLock) Recorder(step string) state.Recorder {
	rec := u.Journal.Recorder(step)
	if u.lock == nil {
		return onlyBack{rec}
	}
	return u.lock.Recorder(u.ctx, rec)
}

// onlyBack records for a process that only puts the traffic back, which takes no lock
// (semantics 14).
type onlyBack struct{ state.Recorder }

// Intent refuses: what may be done without the lock goes past it.
func (o onlyBack) Intent(call, object string, _, _ any) (int64, error) {
	return 0, o.Guard(call + " on " + object)
}

// Guard refuses likewise.
func (onlyBack) Guard(change string) error {
	return &state.Withheld{Change: change, Err: &state.Stop{Code: state.ExitResumable,
		Why: "this process only puts the traffic back, and has not taken the lock for anything else", Cure: "run the same command again"}}
}

// Unguarded is the recorder itself.
func (o onlyBack) Unguarded() state.Recorder { return o.Recorder }
