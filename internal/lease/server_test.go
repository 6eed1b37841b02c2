package lease_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// server keeps one Lease as an API server does: writes name the version that they
// were made on.
type server struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	uid     int
	writes  int
}

func (s *server) get() (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil, apierrors.NewNotFound(leases, lease.Name)
	}
	return s.lease.DeepCopy(), nil
}

func (s *server) create(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(leases, l.Name)
	}
	s.uid++
	l = l.DeepCopy()
	l.UID = types.UID(fmt.Sprint("uid-", s.uid))
	return s.store(l), nil
}

func (s *server) update(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lease == nil:
		return nil, apierrors.NewNotFound(leases, l.Name)
	case l.ResourceVersion != "" && l.ResourceVersion != s.lease.ResourceVersion:
		return nil, apierrors.NewConflict(leases, l.Name, fmt.Errorf("the object has been modified"))
	}
	return s.store(l.DeepCopy()), nil
}

func (s *server) store(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	s.writes++
	l.ResourceVersion = strconv.Itoa(s.version)
	s.lease = l
	return l.DeepCopy()
}

func (s *server) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *server) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = nil
}

// holder is who has the Lease; "" for nobody.
func (s *server) holder() string {
	l, err := s.get()
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// line is one process's way to a server.
type line struct {
	to *server

	mu  sync.Mutex
	err error
	// lose makes the server do what it is asked and its answer get lost.
	lose bool
	// twice makes every write get to the server a second time: the first answer was lost
	// and the transport has sent it again.
	twice bool
	// between is called before each write.
	between func()
}

func (l *line) write(do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	if l.between != nil {
		l.between()
	}
	if l.twice {
		_, _ = l.call(do)
	}
	return l.call(do)
}

func (l *line) cut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.lose = err, false
}

func (l *line) loseAnswers(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.lose = err, true
}

func (l *line) call(do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	err, lose := l.err, l.lose
	l.mu.Unlock()
	if err != nil && !lose {
		return nil, err
	}
	out, doErr := do()
	if err != nil {
		return nil, err
	}
	return out, doErr
}

func (l *line) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.call(l.to.get)
}

func (l *line) Create(_ context.Context, o *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.write(func() (*coordinationv1.Lease, error) { return l.to.create(o) })
}

func (l *line) Update(_ context.Context, o *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.write(func() (*coordinationv1.Lease, error) { return l.to.update(o) })
}

// machine is one process that wants the lock.
type machine struct {
	name  string
	lines []*line
	opt   lease.Options

	mu      sync.Mutex
	notes   []string
	waits   []string
	losses  []*lease.Lost
	guarded []string
}

// newMachine connects a process to the servers, which are clusters a, b, ...
func newMachine(name string, servers ...*server) *machine {
	m := &machine{name: name}
	m.opt = lease.Options{
		Clock: clock.RealClock{}, // of the bubble
		Holder: lease.Holder{Identity: name + "_1_0", Who: state.Who{User: name, Host: "host-" + name, PID: 1},
			Pair: "shop", Run: "run-" + name, Operation: "apply"},
		Waiting: func(s string) { m.add(&m.waits, s) },
		Note:    func(s string) { m.add(&m.notes, s) },
		Lost: func(l *lease.Lost) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.losses = append(m.losses, l)
		},
	}
	for i, s := range servers {
		l := &line{to: s}
		m.lines = append(m.lines, l)
		m.opt.Clusters = append(m.opt.Clusters, lease.Cluster{Name: string(rune('a' + i)), Leases: l})
	}
	return m
}

func (m *machine) add(to *[]string, s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*to = append(*to, s)
}

func (m *machine) heard(of *[]string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), *of...)
}

func (m *machine) lost() []*lease.Lost {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*lease.Lost(nil), m.losses...)
}

func (m *machine) take(t *testing.T) *lease.Lock {
	t.Helper()
	l, err := lease.Take(t.Context(), m.opt)
	if err != nil {
		t.Fatalf("%s cannot take the lock: %v", m.name, err)
	}
	return l
}

func release(t *testing.T, l *lease.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// after lets time pass in the bubble; everything due by then has happened.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
