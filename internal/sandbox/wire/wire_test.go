package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a service that counts what it did; /watch streams until told to stop.
type counter struct {
	mu   sync.Mutex
	done int
}

func (c *counter) Classify(r *http.Request, body []byte) wire.Call {
	return wire.Call{Name: "test:" + strings.Trim(r.URL.Path, "/"), Object: r.URL.Query().Get("object"), Changing: r.Method == http.MethodPost}
}

func (c *counter) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	w.WriteHeader(max(f.Status, 400))
	_, _ = io.WriteString(w, f.Error+": "+f.Message)
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.done++
	c.mu.Unlock()
	wire.Note(r.Context(), "size", r.ContentLength)
	wire.NoteCaller(r.Context(), "tester")
	if r.URL.Path == "/watch" {
		_, _ = io.WriteString(w, "one\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	b, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Test", "yes")
	_, _ = w.Write(b)
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

type rig struct {
	svc    *counter
	faults *wire.Faults
	srv    *httptest.Server
	client *http.Client
	log    *lockedBuffer
	seen   chan wire.Entry
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) entries(t *testing.T) []wire.Entry {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []wire.Entry
	d := json.NewDecoder(bytes.NewReader(l.b.Bytes()))
	for {
		var e wire.Entry
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}

func serve(t *testing.T, now func() time.Time, faults ...wire.Fault) *rig {
	t.Helper()
	f, err := wire.NewFaults(now, faults...)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{svc: &counter{}, faults: f, log: &lockedBuffer{}, seen: make(chan wire.Entry, 100)}
	log := wire.NewLog(r.log)
	log.Watch(func(e wire.Entry) { r.seen <- e })
	r.srv = httptest.NewUnstartedServer(wire.New(r.svc, log, f))
	r.srv.Config.ConnContext = wire.ConnContext
	r.srv.Start()
	transport := &http.Transport{}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		f.Close()
		transport.CloseIdleConnections()
		r.srv.Close()
	})
	return r
}

func (r *rig) post(t *testing.T, path, body string) (int, string, error) {
	t.Helper()
	resp, err := r.client.Post(r.srv.URL+path, "text/plain", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestUndisturbedCallIsServedAndLogged(t *testing.T) {
	r := serve(t, nil)
	status, body, err := r.post(t, "/do?object=blue", "hello")
	if err != nil || status != 200 || body != "hello" {
		t.Fatalf("got %d %q %v", status, body, err)
	}
	entries := r.log.entries(t)
	if len(entries) != 1 {
		t.Fatalf("log has %d lines", len(entries))
	}
	e := entries[0]
	if e.Call != "test:do" || e.Object != "blue" || !e.Changing || !e.Accepted || e.Status != 200 || e.Caller != "tester" || e.Detail["size"] != float64(5) {
		t.Errorf("log line is %+v", e)
	}
	if e.Time.IsZero() || e.Fault != "" {
		t.Errorf("log line is %+v", e)
	}
}

func TestTooLongABodyIsRefused(t *testing.T) {
	r := serve(t, nil)
	status, _, err := r.post(t, "/do", strings.Repeat("x", wire.MaxBody+1))
	if err == nil && status != http.StatusRequestEntityTooLarge {
		t.Fatalf("status %d", status)
	}
	if r.svc.count() != 0 {
		t.Error("the service saw it")
	}
}

func TestWhichCallsAFaultHits(t *testing.T) {
	for name, tt := range map[string]struct {
		fault wire.Fault
		want  string // x hit, . not
	}{
		"first":             {wire.Fault{Call: "test:do"}, "x....."},
		"nth":               {wire.Fault{Call: "test:do", Nth: 3}, "..x..."},
		"nth and times":     {wire.Fault{Call: "test:do", Nth: 2, Times: 3}, ".xxx.."},
		"all from nth":      {wire.Fault{Call: "test:do", Nth: 4, Times: -1}, "...xxx"},
		"every":             {wire.Fault{Call: "test:do", Every: 2}, ".x.x.x"},
		"every third":       {wire.Fault{Call: "test:do", Every: 3}, "..x..x"},
		"every, bounded":    {wire.Fault{Call: "test:do", Every: 2, Times: 2}, ".x.x.."},
		"pattern":           {wire.Fault{Call: "test:*", Times: -1}, "xxxxxx"},
		"pattern inside":    {wire.Fault{Call: "t*:d*", Times: -1}, "xxxxxx"},
		"any":               {wire.Fault{Call: "*", Times: 2}, "xx...."},
		"another call":      {wire.Fault{Call: "test:other", Times: -1}, "......"},
		"object":            {wire.Fault{Call: "*", Object: "blue", Times: -1}, "xxxxxx"},
		"another object":    {wire.Fault{Call: "*", Object: "green", Times: -1}, "......"},
		"no suffix matched": {wire.Fault{Call: "test:d", Times: -1}, "......"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.fault.Error = "Nope"
			r := serve(t, nil, tt.fault)
			got := ""
			for range tt.want {
				status, _, err := r.post(t, "/do?object=blue", "")
				if err != nil {
					t.Fatal(err)
				}
				got += map[bool]string{true: "x", false: "."}[status != 200]
			}
			if got != tt.want {
				t.Errorf("hit %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAFaultIsBoundedInTime(t *testing.T) {
	for name, tt := range map[string]struct {
		fault wire.Fault
		want  string
	}{
		"from the start":    {wire.Fault{From: 10 * time.Second, For: time.Minute}, ".xxxxxx..."},
		"from a call on":    {wire.Fault{Onset: 3, For: 30 * time.Second}, "..xxx....."},
		"after a call":      {wire.Fault{Onset: 3, From: 20 * time.Second, For: 20 * time.Second}, "....xx...."},
		"nth within a time": {wire.Fault{Onset: 3, Nth: 2, For: time.Minute}, "...x......"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			at := time.Unix(1_800_000_000, 0)
			now := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
			tt.fault.Call, tt.fault.Error, tt.fault.Status = "*", "Nope", 503
			r := serve(t, now, tt.fault)
			got := ""
			for range 10 {
				status, _, err := r.post(t, "/do", "")
				if err != nil {
					t.Fatal(err)
				}
				got += map[int]string{503: "x", 200: "."}[status]
				mu.Lock()
				at = at.Add(10 * time.Second)
				mu.Unlock()
			}
			if got != tt.want {
				t.Errorf("hit %s, want %s", got, tt.want)
			}
		})
	}
}

func TestFaultsAreAddedWhileServing(t *testing.T) {
	r := serve(t, nil)
	if status, _, _ := r.post(t, "/do", ""); status != 200 {
		t.Fatal(status)
	}
	if err := r.faults.Add(wire.Fault{Call: "*", Error: "Nope", Message: "not now", Times: -1}); err != nil {
		t.Fatal(err)
	}
	status, body, _ := r.post(t, "/do", "")
	if status != 400 || body != "Nope: not now" {
		t.Errorf("got %d %q", status, body)
	}
	r.faults.Clear()
	if status, _, _ := r.post(t, "/do", ""); status != 200 {
		t.Error("still disturbed after Clear")
	}
	last := r.log.entries(t)[1]
	if last.Accepted || last.Status != 400 || last.Fault != "error Nope" {
		t.Errorf("log line is %+v", last)
	}
}

func TestWrongFaultsAreRefused(t *testing.T) {
	for _, f := range []wire.Fault{
		{Error: "Nope"}, {Call: "*"}, {Call: "*", Reset: "sometimes"}, {Call: "*", Hold: "yes"},
		{Call: "*", Error: "Nope", Nth: -1}, {Call: "*", Error: "Nope", Times: -2}, {Call: "*", Delay: -time.Second},
	} {
		if _, err := wire.NewFaults(nil, f); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
}

func TestResetCutsTheConnection(t *testing.T) {
	for _, when := range []string{wire.Before, wire.After} {
		t.Run(when, func(t *testing.T) {
			r := serve(t, nil, wire.Fault{Call: "*", Reset: when})
			_, _, err := r.post(t, "/do", "x")
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
				t.Fatalf("the client got %v", err)
			}
			want := map[string]int{wire.Before: 0, wire.After: 1}[when]
			if r.svc.count() != want {
				t.Errorf("the service did %d calls, want %d", r.svc.count(), want)
			}
			e := <-r.seen
			if e.Accepted != (when == wire.After) || e.Fault != "reset "+when {
				t.Errorf("log line is %+v", e)
			}
		})
	}
}

func TestHoldAnswersNeverAndTellsWhen(t *testing.T) {
	for _, when := range []string{wire.Before, wire.After} {
		t.Run(when, func(t *testing.T) {
			r := serve(t, nil, wire.Fault{Call: "*", Hold: when})
			ctx, kill := context.WithCancel(t.Context())
			held := make(chan wire.Call, 1)
			r.faults.OnHold(func(c wire.Call) {
				// By now the log knows what was accepted.
				e := <-r.seen
				if e.Accepted != (when == wire.After) {
					t.Errorf("log line at the hold is %+v", e)
				}
				held <- c
				kill()
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.srv.URL+"/do", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.client.Do(req); !errors.Is(err, context.Canceled) {
				t.Fatalf("the client got %v", err)
			}
			if c := <-held; c.Name != "test:do" || !c.Changing {
				t.Errorf("held %+v", c)
			}
			if status, _, err := r.post(t, "/do", "again"); err != nil || status != 200 {
				t.Errorf("the next call: %d %v", status, err)
			}
		})
	}
}

func TestCloseLetsHeldCallsGo(t *testing.T) {
	r := serve(t, nil, wire.Fault{Call: "*", Hold: wire.After})
	r.faults.OnHold(func(wire.Call) { r.faults.Close() })
	if _, _, err := r.post(t, "/do", "x"); err == nil {
		t.Error("a held call was answered")
	}
}

func TestDelayAnswersAllTheSame(t *testing.T) {
	r := serve(t, nil, wire.Fault{Call: "*", Delay: time.Millisecond}, wire.Fault{Call: "*", Delay: time.Millisecond, Error: "Nope"})
	status, _, err := r.post(t, "/do", "")
	if err != nil || status != 400 {
		t.Fatalf("got %d %v", status, err)
	}
	if e := <-r.seen; e.Fault != "delay 2ms, error Nope" {
		t.Errorf("fault is %q", e.Fault)
	}
}

func TestStreamsFlowAndCanBeCut(t *testing.T) {
	r := serve(t, nil, wire.Fault{Call: "test:watch", Nth: 2, Reset: wire.After})
	resp, err := r.client.Get(r.srv.URL + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != "one\n" {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	if e := <-r.seen; !e.Accepted || e.Call != "test:watch" {
		t.Errorf("log line of a running watch is %+v", e)
	}
	_ = resp.Body.Close()

	if resp, err := r.client.Get(r.srv.URL + "/watch"); err == nil {
		_ = resp.Body.Close()
		t.Error("the second watch was answered")
	}
}

func TestResetReachesThroughTLSAndHTTP2(t *testing.T) {
	f, err := wire.NewFaults(nil, wire.Fault{Call: "*", Reset: wire.Before})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(wire.New(&counter{}, nil, f))
	srv.Config.ConnContext = wire.ConnContext
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	client := srv.Client()
	defer client.CloseIdleConnections()
	_, err = client.Get(srv.URL + "/do")
	if op, ok := errors.AsType[*net.OpError](err); !ok && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("the client got %v (%v)", err, op)
	}
	resp, err := client.Get(srv.URL + "/do")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ProtoMajor != 2 {
		t.Errorf("spoke %s", resp.Proto)
	}
}
