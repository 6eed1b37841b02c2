package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// defaultWatch is how long a watch lasts that does not say so; kube-apiserver draws it
// between 30 and 60 minutes.
const defaultWatch = 45 * time.Minute

// stream sends the events of one watch.
type stream struct {
	srv     *Server
	r       *http.Request
	sel     selection
	ns      string
	a       accepted
	frames  io.Writer
	flush   func() error
	last    uint64 // everything up to this revision has been sent
	initial bool   // the present state is sent first
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, q request) error {
	a, err := negotiate(r, q.res, true)
	if err != nil {
		return err
	}
	sel, err := selects(r, q)
	if err != nil {
		return err
	}
	st := &stream{srv: s, r: r, sel: sel, ns: q.namespace, a: a}
	if err := st.begin(); err != nil {
		return err
	}
	contentType := a.info.MediaType
	if contentType == mediaProto {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	st.frames = a.info.StreamSerializer.NewFrameWriter(w)
	st.flush = http.NewResponseController(w).Flush
	lasts := defaultWatch
	if t := sel.opts.TimeoutSeconds; t != nil && *t > 0 {
		lasts = time.Duration(*t) * time.Second
	}
	ctx, cancel := context.WithTimeout(r.Context(), lasts)
	defer cancel()
	st.run(ctx) // whatever ends it, the client sees the stream end
	return nil
}

// begin works out where the watch starts: with the present state ("" and "0", or a
// streaming list), or after a revision.
func (st *stream) begin() error {
	o := st.sel.opts
	streaming := o.SendInitialEvents != nil
	switch {
	case streaming && o.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan:
		return invalidOptions(field.Forbidden(field.NewPath("resourceVersionMatch"), "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	case !streaming && o.ResourceVersionMatch != "":
		return invalidOptions(field.Forbidden(field.NewPath("resourceVersionMatch"), "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	}
	var rev uint64
	if o.ResourceVersion != "" {
		var err error
		if rev, err = revision(o.ResourceVersion); err != nil {
			return err
		}
	}
	now := st.srv.Registry.Rev()
	switch {
	case streaming && *o.SendInitialEvents:
		if rev > now {
			return listError(store.ErrTooNew, rev, now)
		}
		st.initial = true
	case rev == 0 && streaming:
		st.last = now
	case rev == 0:
		st.initial = true
	default:
		st.last = rev
	}
	return nil
}

func invalidOptions(e *field.Error) error {
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", field.ErrorList{e})
}

func (st *stream) run(ctx context.Context) {
	if st.initial && st.sendInitial() != nil || st.flush() != nil {
		return
	}
	var tick <-chan time.Time
	if st.sel.opts.AllowWatchBookmarks {
		t := time.NewTicker(st.srv.Bookmark)
		defer t.Stop()
		tick = t.C
	}
	for {
		events, upto, changed, err := st.srv.Registry.Since(st.sel.res.GR(), st.last)
		if err != nil {
			st.fail(err)
			return
		}
		for _, e := range events {
			if st.send(e) != nil {
				return
			}
		}
		// A watch from a revision still to come stays there.
		st.last = max(st.last, upto)
		if len(events) > 0 && st.flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-tick:
			if st.bookmark(false) != nil {
				return
			}
		case <-st.srv.Done:
			return
		case <-ctx.Done():
			if st.sel.opts.AllowWatchBookmarks && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				_ = st.bookmark(false) // the stream ends either way
			}
			return
		}
	}
}

// sendInitial sends everything there is as ADDED, and the bookmark that ends a streaming
// list.
func (st *stream) sendInitial() error {
	items, rev := st.srv.Registry.List(st.sel.res.GR(), st.ns)
	for _, o := range items {
		if st.sel.matches(o) {
			if err := st.emit(apiwatch.Added, st.srv.transform(st.r, st.a, st.sel.res, o)); err != nil {
				return err
			}
		}
	}
	st.last = rev
	if st.sel.opts.SendInitialEvents != nil && st.sel.opts.AllowWatchBookmarks {
		return st.bookmark(true)
	}
	return nil
}

// send sends one change as the selection sees it: an object that begins to match is
// ADDED, one that no longer does is DELETED.
func (st *stream) send(e store.Event) error {
	if st.ns != "" && e.Object.GetNamespace() != st.ns {
		return nil
	}
	before := e.Prev != nil && st.sel.matches(e.Prev)
	after := e.Type != store.Deleted && st.sel.matches(e.Object)
	var t apiwatch.EventType
	o := e.Object
	switch {
	case before && after:
		t = apiwatch.Modified
	case after:
		t = apiwatch.Added
	case before:
		t = apiwatch.Deleted
		if e.Type != store.Deleted { // the last state that matched, at the revision of this change
			o = e.Prev.DeepCopyObject().(store.Object)
			o.SetResourceVersion(e.Object.GetResourceVersion())
		}
	default:
		return nil
	}
	return st.emit(t, st.srv.transform(st.r, st.a, st.sel.res, o))
}

// bookmark says up to which revision the client has seen everything.
func (st *stream) bookmark(initialEnd bool) error {
	o := st.sel.res.New()
	o.SetResourceVersion(store.FormatRev(st.last))
	if initialEnd {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if st.a.as == "Table" && !initialEnd {
		return nil // a row of nothing would be printed as an object
	}
	if err := st.emit(apiwatch.Bookmark, st.srv.transform(st.r, st.a, st.sel.res, o)); err != nil {
		return err
	}
	return st.flush()
}

// fail ends the watch with an ERROR event: once a watch has begun, errors come that way.
func (st *stream) fail(err error) {
	if errors.Is(err, store.ErrTooOld) {
		err = apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", st.last, st.srv.Registry.Rev()))
	}
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	s := api.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if st.emit(apiwatch.Error, &s) == nil {
		_ = st.flush() // the stream ends either way
	}
}

func (st *stream) emit(t apiwatch.EventType, o runtime.Object) error {
	var b bytes.Buffer
	if err := st.a.info.Serializer.Encode(o, &b); err != nil {
		return err
	}
	e := &metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: b.Bytes()}}
	return st.a.info.StreamSerializer.Encode(e, st.frames)
}
