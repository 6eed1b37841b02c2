package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Entry is one line of the log: what was asked and what became of it.
type Entry struct {
	Time     time.Time `json:"time"`
	Call     string    `json:"call"`
	Object   string    `json:"object,omitempty"`
	Changing bool      `json:"changing"`
	// Accepted is true when the service did what was asked (a 2xx answer), whether
	// or not the client ever saw that answer.
	Accepted bool `json:"accepted"`
	// Status is the HTTP status of the answer, 0 when the service never saw the call.
	Status int    `json:"status"`
	Fault  string `json:"fault,omitempty"`
	// Caller is who signed it: an ARN, or the Kubernetes user.
	Caller string `json:"caller,omitempty"`
	// Detail is what the service found worth noting: tokens, weights, an error code.
	Detail map[string]any `json:"detail,omitempty"`
}

// Log writes one JSON line for every request served. A line is written when the
// service has done the call and before the client can see its answer, so whoever
// acts on an answer finds the line there.
type Log struct {
	mu   sync.Mutex
	w    io.Writer
	err  error
	seen []func(Entry)
}

// NewLog writes to w, which may be nil to only call watchers.
func NewLog(w io.Writer) *Log { return &Log{w: w} }

// Watch has fn called with every entry after it was written. fn must not block and
// must not call back into the log.
func (l *Log) Watch(fn func(Entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, fn)
}

// Err is the first error of writing, nil when all was written.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Log) write(e Entry) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w != nil && l.err == nil {
		line, err := json.Marshal(e)
		if err == nil {
			_, err = l.w.Write(append(line, '\n'))
		}
		if err != nil {
			l.err = fmt.Errorf("write the log line of %s: %w", e.Call, err)
		}
	}
	for _, fn := range l.seen {
		fn(e)
	}
}

// notes collects what a service has to say about the request it serves.
type notes struct {
	mu     sync.Mutex
	caller string
	detail map[string]any
}

type notesKey struct{}

func withNotes(r *http.Request) (*http.Request, *notes) {
	n := &notes{}
	return r.WithContext(context.WithValue(r.Context(), notesKey{}, n)), n
}

// Note adds one detail to the log line of the request that ctx belongs to; outside
// of wire.New it does nothing.
func Note(ctx context.Context, key string, value any) {
	n, ok := ctx.Value(notesKey{}).(*notes)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.detail == nil {
		n.detail = map[string]any{}
	}
	n.detail[key] = value
}

// NoteCaller names who made the request that ctx belongs to.
func NoteCaller(ctx context.Context, who string) {
	n, ok := ctx.Value(notesKey{}).(*notes)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.caller = who
}

func (n *notes) into(e *Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e.Caller = n.caller
	if len(n.detail) > 0 {
		e.Detail = make(map[string]any, len(n.detail))
		for k, v := range n.detail {
			e.Detail[k] = v
		}
	}
}
