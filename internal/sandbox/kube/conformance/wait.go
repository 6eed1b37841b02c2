package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is the Watch method of every typed client.
type watcher interface {
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// api is what waiting needs of a typed client.
type api[T any] interface {
	watcher
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// object is an API object of some type.
type object interface {
	runtime.Object
	metav1.Object
}

// await watches an object until it is as wanted, and returns it. The check ends when it
// is not in time; the last state is printed then.
func await[T object](c *Case, a api[T], name, what string, ok func(T) bool) T {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, c.Patience)
	defer cancel()
	var last T
	for ctx.Err() == nil {
		o, err := a.Get(ctx, name, metav1.GetOptions{})
		rv := ""
		switch {
		case err == nil:
			if last = o; ok(o) {
				return o
			}
			rv = o.GetResourceVersion()
		case !apierrors.IsNotFound(err) && ctx.Err() == nil:
			c.Fatalf("waiting until %s %s: %v", name, what, err)
		}
		found, seen := follow(ctx, a, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: rv}, func(e watch.Event) bool {
			o, is := e.Object.(T)
			if !is || e.Type == watch.Deleted || e.Type == watch.Bookmark {
				return false
			}
			last = o
			return ok(o)
		})
		if found {
			return seen.(T)
		}
	}
	c.Fatalf("waited in vain until %s %s; it is %s", name, what, describe(last))
	return last
}

// awaitGone watches until no object of that name, with that uid if it is not empty, is there.
func awaitGone[T object](c *Case, a api[T], name, uid string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, c.Patience)
	defer cancel()
	for ctx.Err() == nil {
		o, err := a.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && uid != "" && string(o.GetUID()) != uid {
			return
		}
		if err != nil && ctx.Err() == nil {
			c.Fatalf("waiting until %s is gone: %v", name, err)
		}
		if found, _ := follow(ctx, a, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: o.GetResourceVersion()}, func(e watch.Event) bool {
			return e.Type == watch.Deleted
		}); found {
			return
		}
	}
	c.Fatalf("waited in vain until %s is gone", name)
}

// follow watches until f is true of an event, and returns its object; false when the
// watch ended before.
func follow(ctx context.Context, w watcher, o metav1.ListOptions, f func(watch.Event) bool) (bool, runtime.Object) {
	wi, err := w.Watch(ctx, o)
	if err != nil {
		return false, nil // the caller looks again, until its time is over
	}
	defer wi.Stop()
	for {
		select {
		case e, ok := <-wi.ResultChan():
			if !ok || e.Type == watch.Error {
				return false, nil
			}
			if f(e) {
				return true, e.Object
			}
		case <-ctx.Done():
			return false, nil
		}
	}
}

// awaitPods watches the pods that a selector matches until they are as wanted, and
// returns them by name. ok is called for each state that can be seen.
func (c *Case) awaitPods(selector, what string, ok func([]corev1.Pod) bool) []corev1.Pod {
	c.Helper()
	pods, good := c.watchPods(selector, ok)
	if !good {
		c.Fatalf("waited in vain until the pods of %s %s; they are%s", selector, what, describePods(pods))
	}
	return pods
}

func (c *Case) watchPods(selector string, ok func([]corev1.Pod) bool) ([]corev1.Pod, bool) {
	ctx, cancel := context.WithTimeout(c.ctx, c.Patience)
	defer cancel()
	a := c.cs.CoreV1().Pods(c.ns)
	var state []corev1.Pod
	for ctx.Err() == nil {
		l, err := a.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			if ctx.Err() == nil {
				c.Fatal(err)
			}
			break
		}
		byName := map[string]*corev1.Pod{}
		for i := range l.Items {
			byName[l.Items[i].Name] = &l.Items[i]
		}
		if state = sorted(byName); ok(state) {
			return state, true
		}
		if found, _ := follow(ctx, a, metav1.ListOptions{LabelSelector: selector, ResourceVersion: l.ResourceVersion}, func(e watch.Event) bool {
			p, is := e.Object.(*corev1.Pod)
			if !is {
				return false
			}
			if e.Type == watch.Deleted {
				delete(byName, p.Name)
			} else {
				byName[p.Name] = p
			}
			state = sorted(byName)
			return ok(state)
		}); found {
			return state, true
		}
	}
	return state, false
}

// describe spells an object for people.
func describe(o any) string { return fmt.Sprintf("%+v", o) }

func describePods(pods []corev1.Pod) string {
	s := ""
	for _, p := range pods {
		s += fmt.Sprintf(" %s(%s ready=%v terminating=%v node=%q)", p.Name, p.Status.Phase, podReady(p), p.DeletionTimestamp != nil, p.Spec.NodeName)
	}
	return s
}

// statusOf is the status that an error carries.
func statusOf(err error) metav1.Status {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		return s.Status()
	}
	return metav1.Status{}
}

func httpRequest(method, url string) (*http.Request, error) { return http.NewRequest(method, url, nil) }

func newClient(t http.RoundTripper) *http.Client { return &http.Client{Transport: t} }
