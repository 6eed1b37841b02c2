package cluster

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// pageSize is how many objects one list request asks for.
const pageSize = 500

// relists is how often a list is begun anew because its continue token expired.
const relists = 3

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
	// keep is what the objects are pruned to, keys are the labels and annotations among it.
	keep message
	keys []string
	// start throws away what was kept: the list begins, or begins anew.
	start func()
	// each gets one object after the other; it must not hold on to it.
	each func(*T)
	// first, if set, is called when the first page has arrived, with the number of objects
	// in the list as far as the API server tells.
	first func(n int)
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
			return forbidden("list", l.resource, "", b.cluster, err)
		}
		return fmt.Errorf("list %s of cluster %s: %w", l.resource, b.cluster, err)
	}
}

// isExpired tells whether a continue token is not good any more.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func pass[T any, P decodable[T]](ctx context.Context, b *bench, l list[T]) error {
	ctx, cancel := context.WithCancel(ctx)
	now, ahead := &b.pages[0], &b.pages[1]
	want := wanted{l.keep, make(map[string]bool, len(l.keys))}
	for _, key := range l.keys {
		want.keys[key] = true
	}
	var coming sync.WaitGroup
	// Nobody else may use the pages before the request that fills one has ended.
	defer coming.Wait()
	defer cancel()
	now.fetch(ctx, l.client, l.resource, want, "")
	for first := true; ; first = false {
		coming.Wait()
		if now.err != nil {
			return now.err
		}
		if first && l.first != nil {
			l.first(len(now.ends) + int(now.left))
		}
		more := now.more
		if more != "" {
			to := ahead
			coming.Go(func() { to.fetch(ctx, l.client, l.resource, want, more) })
		}
		if err := each[T, P](now, l); err != nil {
			return err
		}
		if more == "" {
			return nil
		}
		now, ahead = ahead, now
	}
}

// each hands over the objects of a page.
func each[T any, P decodable[T]](p *page, l list[T]) error {
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
	for from, end := range p.ends {
		begin := 0
		if from > 0 {
			begin = p.ends[from-1]
		}
		*obj = *new(T)
		if err := obj.Unmarshal(p.items[begin:end]); err != nil {
			return fmt.Errorf("%w: %w", errWire, err)
		}
		l.each(obj)
	}
	return nil
}
