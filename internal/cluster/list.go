package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// pageSize is how many objects one list request asks for.
const pageSize = 500

// relists is how often a list is begun anew because its continue token expired.
const relists = 3

// notEverywhere are resources that may be absent from an API server; then there are
// no such objects. Of the others an answer 404 is not believed.
var notEverywhere = map[string]bool{
	"replicationcontrollers":                                       true,
	"priorityclasses.scheduling.k8s.io":                            true,
	"validatingwebhookconfigurations.admissionregistration.k8s.io": true,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":   true,
}

// decodable is a pointer to an object of the API that decodes itself from protobuf.
type decodable[T any] interface {
	*T
	Unmarshal([]byte) error
}

// list is the reading of one resource in all namespaces.
type list[T any] struct {
	// resource is RESOURCE.GROUP, as RBAC and errors name it.
	resource string
	client   rest.Interface
	// keep is what the objects are pruned to.
	keep message
	// start throws away what was kept: the list begins, or begins anew.
	start func()
	// each gets one object after the other; it must not hold on to it.
	each func(*T)
	// first, if set, is called when the first page has arrived.
	first func()
	// once: a list that expires is an error and not begun anew.
	once bool
}

// read reads one list to its end, a page at a time: the next page is on its way while
// one is looked through. Pages are whole or not kept at all.
func read[T any, P decodable[T]](ctx context.Context, b *bench, l list[T]) error {
	for again := 0; ; again++ {
		l.start()
		err := pass[T, P](ctx, b, l)
		switch {
		case err == nil:
			return nil
		case isExpired(err) && !l.once && again < relists:
			continue
		case apierrors.IsForbidden(err):
			return forbidden("list", l.resource, b.cluster, err)
		case apierrors.IsNotFound(err) && notEverywhere[l.resource]:
			l.start()
			return nil
		}
		return fmt.Errorf("list %s of cluster %s: %w", l.resource, b.cluster, err)
	}
}

// isExpired tells whether a continue token is not good any more.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func pass[T any, P decodable[T]](ctx context.Context, b *bench, l list[T]) error {
	ctx, cancel := context.WithCancel(ctx)
	now, ahead := &b.pages[0], &b.pages[1]
	var coming sync.WaitGroup
	// Nobody else may use the pages before the request that fills one has ended.
	defer coming.Wait()
	defer cancel()
	now.fetch(ctx, l.client, l.resource, "")
	for first := true; ; first = false {
		coming.Wait()
		if now.err != nil {
			return now.err
		}
		if first && l.first != nil {
			l.first()
		}
		more, items, err := now.open()
		if err != nil {
			return err
		}
		if more != "" {
			to := ahead
			coming.Go(func() { to.fetch(ctx, l.client, l.resource, more) })
		}
		if err := each[T, P](now, items, l); err != nil {
			return err
		}
		if more == "" {
			return nil
		}
		now, ahead = ahead, now
	}
}

// each hands over the objects of a page.
func each[T any, P decodable[T]](p *page, items []byte, l list[T]) error {
	if p.other != nil {
		return meta.EachListItem(p.other, func(o runtime.Object) error {
			obj, ok := any(o).(P)
			if !ok {
				return fmt.Errorf("the list holds a %T", o)
			}
			l.each(obj)
			return nil
		})
	}
	obj := P(new(T))
	for from := 0; from < len(items); {
		f, err := next(items, from)
		if err != nil {
			return err
		}
		from = f.end
		if f.number != listItems {
			continue
		}
		kept, err := prune(items[f.body:f.end], l.keep)
		if err != nil {
			return err
		}
		*obj = *new(T)
		if err := obj.Unmarshal(kept); err != nil {
			return fmt.Errorf("%w: %w", errWire, err)
		}
		l.each(obj)
	}
	return nil
}

// bench is where one list after another is read: two pages, used again and again.
type bench struct {
	cluster string
	pages   [2]page
}

// page is one page of a list: the body of an answer in protobuf as it came, or
// another form decoded.
type page struct {
	body  bytes.Buffer
	other runtime.Object
	err   error
}

// fetch asks for the page that the token continues.
func (p *page) fetch(ctx context.Context, client rest.Interface, resource, token string) {
	p.body.Reset()
	p.other, p.err = nil, nil
	name, _, _ := strings.Cut(resource, ".")
	result := client.Get().Resource(name).
		VersionedParams(&metav1.ListOptions{Limit: pageSize, Continue: token}, scheme.ParameterCodec).
		Do(context.WithValue(ctx, pageKey{}, p))
	if p.err = result.Error(); p.err != nil || p.body.Len() > 0 {
		return
	}
	p.other, p.err = result.Get()
}

// What frames protobuf of the API (k8s.io/apimachinery/pkg/runtime/serializer/protobuf):
// a magic number, then a runtime.Unknown, whose field raw is the list; of every list
// field 1 is its metadata and field 2 its items.
const (
	magic         = "k8s\x00"
	unknownRaw    = 2
	unknownCoding = 3
	listMeta      = 1
	listItems     = 2
)

// open gives the token of the next page, and the list itself where it is protobuf.
func (p *page) open() (more string, items []byte, err error) {
	if p.other != nil {
		m, err := meta.ListAccessor(p.other)
		if err != nil {
			return "", nil, fmt.Errorf("the answer is no list: %w", err)
		}
		return m.GetContinue(), nil, nil
	}
	b, ok := bytes.CutPrefix(p.body.Bytes(), []byte(magic))
	if !ok {
		return "", nil, errWire
	}
	for from := 0; from < len(b); {
		f, err := next(b, from)
		if err != nil {
			return "", nil, err
		}
		from = f.end
		switch {
		case f.number == unknownRaw:
			items = b[f.body:f.end]
		case f.number == unknownCoding && f.end > f.body:
			return "", nil, errors.New("the answer has an encoding within that nobody asked for")
		}
	}
	for from := 0; from < len(items); {
		f, err := next(items, from)
		if err != nil {
			return "", nil, err
		}
		from = f.end
		if f.number != listMeta {
			continue
		}
		var m metav1.ListMeta
		if err := m.Unmarshal(items[f.body:f.end]); err != nil {
			return "", nil, fmt.Errorf("%w: %w", errWire, err)
		}
		return m.Continue, items, nil
	}
	return "", nil, errWire
}

// pageKey is the context's key for the page that an answer goes into.
type pageKey struct{}

// collector takes the body of a list in protobuf aside, into the page that waits for
// it. The layers above would copy it three times, each time growing as they go. A body
// that breaks off is a failed request here as well.
type collector struct{ next http.RoundTripper }

// RoundTrip sends the request.
func (c *collector) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	p, ok := req.Context().Value(pageKey{}).(*page)
	if err != nil || !ok || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != runtime.ContentTypeProtobuf {
		return resp, err
	}
	p.body.Reset()
	_, err = p.body.ReadFrom(resp.Body)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	resp.Body, resp.ContentLength = http.NoBody, 0
	return resp, nil
}
