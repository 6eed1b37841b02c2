package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// bench is where one list after another is read: two pages, used again and again.
type bench struct {
	cluster string
	pages   [2]page
}

// wanted is what objects are pruned to.
type wanted struct {
	keep message
	keys map[string]bool
}

// page is one page of a list.
type page struct {
	want wanted
	// items are the objects, pruned, one behind the other; ends is where each ends.
	items []byte
	ends  []int
	// other is the page decoded, where it came in another form than protobuf.
	other runtime.Object
	// more continues the list; empty at its end. left is how many objects are to come,
	// 0 where the API server does not tell.
	more string
	left int64
	err  error

	in   *bufio.Reader
	item []byte
}

func (p *page) reset() {
	p.items, p.ends, p.other, p.more, p.left, p.err = p.items[:0], p.ends[:0], nil, "", 0, nil
}

// fetch asks for the page that the token continues.
func (p *page) fetch(ctx context.Context, client rest.Interface, resource string, want wanted, token string) {
	p.reset()
	p.want = want
	name, _, _ := strings.Cut(resource, ".")
	result := client.Get().Resource(name).
		VersionedParams(&metav1.ListOptions{Limit: pageSize, Continue: token}, scheme.ParameterCodec).
		Do(context.WithValue(ctx, pageKey{}, p))
	if err := result.Error(); err != nil {
		p.err = err
	}
	var kind string
	if result.ContentType(&kind); p.err != nil || kind == runtime.ContentTypeProtobuf {
		return
	}
	var m metav1.ListInterface
	if p.other, p.err = result.Get(); p.err == nil {
		if m, p.err = meta.ListAccessor(p.other); p.err == nil {
			p.more = m.GetContinue()
		}
	}
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
	// mostItem is far more than an object may have (etcd takes 1.5 MB).
	mostItem = 64 << 20
	// mostLeft bounds what is made ready for the objects that are to come.
	mostLeft = 1 << 17
)

// take reads a list in protobuf as it arrives and keeps of each object what is to be
// kept: neither the page nor its objects are ever whole in memory. An error that is
// not errWire is one of the connection.
func (p *page) take(body io.Reader) error {
	p.reset()
	if p.in == nil {
		p.in = bufio.NewReaderSize(nil, 32<<10)
	}
	p.in.Reset(body)
	w := &wire{in: p.in}
	if err := w.fill(len(magic), &p.item); err != nil {
		return err
	}
	if string(p.item) != magic {
		return errWire
	}
	for listed := false; ; {
		number, length, err := w.header()
		switch {
		case errors.Is(err, io.EOF) && listed:
			return nil
		case err != nil:
			return broken(err)
		case number == unknownRaw:
			listed = true
			err = p.takeList(w, w.at+length)
		case number == unknownCoding && length > 0:
			return errWire
		default:
			err = w.skip(length)
		}
		if err != nil {
			return broken(err)
		}
	}
}

// takeList reads the list that goes to end.
func (p *page) takeList(w *wire, end int64) error {
	for w.at < end {
		number, length, err := w.header()
		if err != nil {
			return err
		}
		if number != listItems && number != listMeta {
			if err := w.skip(length); err != nil {
				return err
			}
			continue
		}
		if length > mostItem {
			return errWire
		}
		if err := w.fill(int(length), &p.item); err != nil {
			return err
		}
		if number == listMeta {
			var m metav1.ListMeta
			if err := m.Unmarshal(p.item); err != nil {
				return fmt.Errorf("%w: %w", errWire, err)
			}
			p.more = m.Continue
			if m.RemainingItemCount != nil {
				p.left = min(max(*m.RemainingItemCount, 0), mostLeft)
			}
			continue
		}
		kept, err := prune(p.item, p.want.keep, p.want.keys)
		if err != nil {
			return err
		}
		p.items = append(p.items, kept...)
		p.ends = append(p.ends, len(p.items))
	}
	if w.at > end {
		return errWire
	}
	return nil
}

// wire reads the outer fields of a message, all of which state their length.
type wire struct {
	in *bufio.Reader
	at int64
}

// ReadByte makes it what varints are read from.
func (w *wire) ReadByte() (byte, error) {
	b, err := w.in.ReadByte()
	if err == nil {
		w.at++
	}
	return b, err
}

// header reads the number and the length of the next field; io.EOF if there is none.
func (w *wire) header() (number uint64, length int64, err error) {
	tag, err := w.varint()
	if err != nil {
		return 0, 0, err
	}
	if tag&7 != wireBytes {
		return 0, 0, errWire
	}
	size, err := w.varint()
	if err != nil {
		return 0, 0, broken(err)
	}
	if size > 1<<40 {
		return 0, 0, errWire
	}
	return tag >> 3, int64(size), nil
}

func (w *wire) varint() (uint64, error) {
	from := w.at
	v, err := binary.ReadUvarint(w)
	if err != nil && w.at-from >= binary.MaxVarintLen64 {
		return 0, errWire
	}
	return v, err
}

func (w *wire) fill(n int, into *[]byte) error {
	if cap(*into) < n {
		*into = make([]byte, n, n+n/4)
	}
	*into = (*into)[:n]
	got, err := io.ReadFull(w.in, *into)
	w.at += int64(got)
	return broken(err)
}

func (w *wire) skip(n int64) error {
	got, err := io.CopyN(io.Discard, w.in, n)
	w.at += got
	return broken(err)
}

// broken is the end of the body where there is more to come.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// pageKey is the context's key for the page that an answer goes into.
type pageKey struct{}

// collector takes the body of a list in protobuf aside, into the page that waits for
// it. The layers above would read all of it into memory, and copy it. A body that
// breaks off is a failed request here as well, and repeated.
type collector struct{ next http.RoundTripper }

// RoundTrip sends the request.
func (c *collector) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	p, ok := req.Context().Value(pageKey{}).(*page)
	if err != nil || !ok || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != runtime.ContentTypeProtobuf {
		return resp, err
	}
	err = p.take(resp.Body)
	// What nobody can read is not repeated.
	if errors.Is(err, errWire) {
		p.err, err = err, nil
	}
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	resp.Body, resp.ContentLength = http.NoBody, 0
	return resp, nil
}
