package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// Endpoint is one pod behind an entrance.
type Endpoint struct {
	Pod   string
	IP    string
	Ready bool
}

// Member is what a value of a weighted record leads to: a cluster, at an address
// of its own.
type Member struct {
	Addr    netip.Addr
	Cluster string
	// Endpoints are the pods of the service behind it.
	Endpoints func() []Endpoint
}

// Group is one target group of a forward action, as the listener says now.
type Group struct {
	ARN    string
	Weight int64
	// Cluster is the one that the group's targets run in.
	Cluster string
	// Targets are the registered ones; healthy as the load balancer sees it.
	Targets []Target
}

// Target is one registered target of a group.
type Target struct {
	Endpoint
	Healthy bool
}

// Balancer is one application load balancer at an address of its own.
type Balancer struct {
	Addr netip.Addr
	// Name is its DNS name.
	Name string
	// Route returns the action of the rule that a request falls under.
	Route func(r *http.Request) Action
}

// Action is what a load balancer does with a request: it forwards to one of the
// groups, or, where Status is set, answers by itself.
type Action struct {
	Groups []Group
	Status int
	Body   string
}

// Options are the entrances to serve.
type Options struct {
	Members   []Member
	Balancers []Balancer
	Failures  []Failure
	// Share is the per cent of the traffic that a cluster gets now, by the entrance
	// that gives it most; nil means 0.
	Share func(cluster string) float64
}

// Edge serves the entrances. It is safe for concurrent use.
type Edge struct {
	opts     Options
	port     int
	picks    *picker
	failures failures
	server   *http.Server
	done     sync.WaitGroup
}

// Answer is the body that every entrance sends: which cluster answered, and who in it.
type Answer struct {
	Cluster string `json:"cluster"`
	Pod     string `json:"pod,omitempty"`
	// Via is the address or the load balancer that the request came in by.
	Via    string `json:"via"`
	Status string `json:"status"`
}

// Start listens on every entrance's address, all on one free port, and serves until Close.
func Start(o Options) (*Edge, error) {
	e := &Edge{opts: o, picks: newPicker()}
	for _, f := range o.Failures {
		e.failures.add(f)
	}
	if e.opts.Share == nil {
		e.opts.Share = func(string) float64 { return 0 }
	}
	listeners, err := e.listen()
	if err != nil {
		return nil, err
	}
	e.server = &http.Server{Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: 10 * time.Second}
	for _, l := range listeners {
		e.done.Go(func() { _ = e.server.Serve(l) }) // ends with ErrServerClosed only
	}
	return e, nil
}

// Port is the port that every entrance listens on.
func (e *Edge) Port() int { return e.port }

// Fail adds a failure while the edge serves.
func (e *Edge) Fail(f Failure) { e.failures.add(f) }

// Heal takes away all failures of a cluster.
func (e *Edge) Heal(cluster string) { e.failures.clear(cluster) }

// Close stops serving and cuts what is open.
func (e *Edge) Close() error {
	err := e.server.Close()
	e.done.Wait()
	if err != nil {
		return fmt.Errorf("stop the data plane: %w", err)
	}
	return nil
}

func (e *Edge) addrs() []netip.Addr {
	var all []netip.Addr
	for _, m := range e.opts.Members {
		all = append(all, m.Addr)
	}
	for _, b := range e.opts.Balancers {
		all = append(all, b.Addr)
	}
	return all
}

// listen finds a port that is free on all addresses: the first address chooses, and
// where another one has it taken, it chooses again.
func (e *Edge) listen() ([]net.Listener, error) {
	addrs := e.addrs()
	if len(addrs) == 0 {
		return nil, nil
	}
	var last error
	for range 20 {
		listeners, port, err := listenAll(addrs)
		if err == nil {
			e.port = port
			return listeners, nil
		}
		last = err
	}
	return nil, fmt.Errorf("listen for the data plane: %w", last)
}

func listenAll(addrs []netip.Addr) (ls []net.Listener, port int, err error) {
	defer func() {
		if err != nil {
			for _, l := range ls {
				_ = l.Close() // given up anyway
			}
		}
	}()
	var lc net.ListenConfig
	for _, a := range addrs {
		l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(a.String(), strconv.Itoa(port)))
		if err != nil {
			return ls, 0, explain(a, err)
		}
		ls = append(ls, l)
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			port = tcp.Port
		}
	}
	return ls, port, nil
}

// explain adds the cure on systems where only 127.0.0.1 of the loopback network
// answers unless it is asked for.
func explain(a netip.Addr, err error) error {
	if runtime.GOOS == "darwin" {
		return fmt.Errorf("%w; make the address known with: sudo ifconfig lo0 alias %s", err, a)
	}
	return err
}

func (e *Edge) serve(w http.ResponseWriter, r *http.Request) {
	local, err := localAddr(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for _, m := range e.opts.Members {
		if m.Addr == local {
			e.member(w, m)
			return
		}
	}
	for _, b := range e.opts.Balancers {
		if b.Addr == local {
			e.balance(w, r, b)
			return
		}
	}
	http.NotFound(w, r)
}

func localAddr(r *http.Request) (netip.Addr, error) {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}, errors.New("the connection has no local address")
	}
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the local address: %w", err)
	}
	return ap.Addr().Unmap(), nil
}

func (e *Edge) member(w http.ResponseWriter, m Member) {
	var ready []Endpoint
	for _, p := range m.Endpoints() {
		if p.Ready {
			ready = append(ready, p)
		}
	}
	a := Answer{Cluster: m.Cluster, Via: m.Addr.String()}
	if len(ready) == 0 {
		e.write(w, http.StatusServiceUnavailable, a)
		return
	}
	a.Pod = ready[e.turn(m.Addr.String(), len(ready))].Pod
	e.answer(w, a)
}

// turn goes round n equal choices.
func (e *Edge) turn(name string, n int) int {
	choices := make([]weighted, n)
	for i := range choices {
		choices[i] = weighted{weight: 1}
	}
	return e.picks.pick("turn "+name, choices)
}

// answer is what the application in the cluster says: well, unless a failure hits.
func (e *Edge) answer(w http.ResponseWriter, a Answer) {
	f, hit := e.failures.next(a.Cluster, e.opts.Share(a.Cluster))
	switch {
	case !hit:
		e.write(w, http.StatusOK, a)
	case f.Status == 0:
		panic(http.ErrAbortHandler) // net/http's own way to cut the connection
	default:
		e.write(w, f.Status, a)
	}
}

func (e *Edge) write(w http.ResponseWriter, status int, a Answer) {
	a.Status = http.StatusText(status)
	body, err := json.Marshal(a)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Cluster", a.Cluster)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that left is its own affair
}
