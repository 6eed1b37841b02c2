package wire

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// MaxBody is how many bytes of a request are read; a longer one is refused with 413.
const MaxBody = 8 << 20

// New puts log and faults in front of a service. log and faults may be nil.
//
// Answers are held back until the service has finished or first flushes, so that
// the log line is there before the client sees anything and an answer that a fault
// withholds never leaks. From its first flush on an answer streams (a watch); a
// fault that strikes after the service then strikes at that flush.
func New(svc Service, log *Log, faults *Faults) http.Handler {
	return &front{svc: svc, log: log, faults: faults}
}

type front struct {
	svc    Service
	log    *Log
	faults *Faults
}

func (h *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	if h.faults != nil {
		start = h.faults.now()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return // the client went away in the middle of its own request
	}
	if len(body) > MaxBody {
		http.Error(w, "request body too large", http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	call := h.svc.Classify(r, body)
	entry := Entry{Time: start.UTC(), Call: call.Name, Object: call.Object, Changing: call.Changing}

	var f Fault
	if h.faults != nil {
		f, _ = h.faults.strike(call)
		entry.Fault = f.Describe()
	}
	if !h.wait(r.Context(), f.Delay) {
		h.log.write(entry)
		cut(w, r)
		return
	}
	if f.Reset == Before || f.Hold == Before {
		h.log.write(entry)
		h.lose(w, r, call, f)
		return
	}
	h.serve(w, r, call, f, entry)
}

// serve lets the service (or the fault in its place) answer.
func (h *front) serve(w http.ResponseWriter, r *http.Request, call Call, f Fault, entry Entry) {
	r, n := withNotes(r)
	// A stream that a fault withholds would otherwise go on for ever unseen.
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	asked := r
	r = r.WithContext(ctx)
	a := &answer{w: w, header: http.Header{}, stop: stop}
	a.begin = func() bool {
		entry.Status = a.status
		entry.Accepted = a.status >= 200 && a.status < 300 || a.status == http.StatusSwitchingProtocols
		n.into(&entry)
		h.log.write(entry)
		return f.Reset != After && f.Hold != After
	}
	if f.Error != "" || f.Status != 0 {
		h.svc.WriteFault(a, r, f)
	} else {
		h.svc.ServeHTTP(a, r)
	}
	a.finish()
	if a.lost {
		h.lose(w, asked, call, f)
	}
}

// lose cuts the connection, at once or when the client gives up.
func (h *front) lose(w http.ResponseWriter, r *http.Request, call Call, f Fault) {
	if f.Hold != "" {
		h.faults.mu.Lock()
		fn := h.faults.onHold
		h.faults.mu.Unlock()
		if fn != nil {
			fn(call)
		}
		select {
		case <-r.Context().Done():
		case <-h.faults.gone:
		}
	}
	cut(w, r)
}

// wait sleeps for d; false when the client or the sandbox went away meanwhile.
func (h *front) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-h.faults.gone:
	}
	return false
}

// answer is the ResponseWriter that services write to.
type answer struct {
	w      http.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
	// begin is called once, when the status is final; false means that the client
	// must not see the answer.
	begin func() bool
	begun bool
	lost  bool
	stop  func()
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.lost {
		return 0, net.ErrClosed
	}
	if a.begun {
		return a.w.Write(p)
	}
	return a.body.Write(p)
}

// Flush sends what was written so far and streams from here on.
func (a *answer) Flush() {
	a.WriteHeader(http.StatusOK)
	a.send()
	if a.lost {
		a.stop()
		return
	}
	if f, ok := a.w.(http.Flusher); ok {
		f.Flush()
	}
}

// Hijack hands the connection over to a service that speaks another protocol on it. A
// fault that strikes after the service cuts it instead.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h, ok := a.w.(http.Hijacker)
	if !ok {
		return nil, nil, http.ErrNotSupported
	}
	if a.status == 0 { // the service writes the head itself
		a.status = http.StatusSwitchingProtocols
		a.begun = a.begin()
		a.lost = !a.begun
	} else {
		a.send()
	}
	if a.lost {
		return nil, nil, net.ErrClosed
	}
	return h.Hijack()
}

// Unwrap lets http.ResponseController reach deadlines of the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.w }

func (a *answer) finish() {
	a.WriteHeader(http.StatusOK)
	if !a.begun && a.body.Len() > 0 {
		a.header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	}
	a.send()
}

func (a *answer) send() {
	if a.begun || a.lost {
		return
	}
	if !a.begin() {
		a.lost = true
		return
	}
	a.begun = true
	for k, v := range a.header {
		a.w.Header()[k] = v
	}
	a.w.WriteHeader(a.status)
	_, _ = a.w.Write(a.body.Bytes())
	a.body.Reset()
}

type connKey struct{}

// ConnContext goes into http.Server.ConnContext, so that a fault can cut the
// connection of an HTTP/2 request too.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// cut ends the connection of a request with a TCP reset and never returns normally
// when that is only possible by aborting the handler.
func cut(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		reset(c)
		panic(http.ErrAbortHandler)
	}
	if h, ok := w.(http.Hijacker); ok {
		if c, _, err := h.Hijack(); err == nil {
			reset(c)
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// reset closes a connection without the orderly end of TCP or TLS.
func reset(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
