package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// TestInformers runs client-go's shared informers over a rollout, in both encodings, with
// streaming lists and with list and watch, and holds their caches against a list.
func TestInformers(t *testing.T) {
	for _, media := range []string{mimeJSON, mimeProto} {
		for _, streaming := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s streaming=%v", media, streaming), func(t *testing.T) {
				featuretesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streaming)
				r := start(t, func(o *kube.Options) { o.Bookmark = 5 * time.Millisecond })
				r.seed(deployment("web", 3), statefulSet("db", 2))
				r.settle()
				testInformers(t, r, media)
			})
		}
	}
}

func testInformers(t *testing.T, r *rig, media string) {
	cs := r.client(media)
	ctx, stop := context.WithCancel(deadline(t))
	f := informers.NewSharedInformerFactory(cs, 0)
	pods, nodes := f.Core().V1().Pods(), f.Core().V1().Nodes()
	gone := make(chan string, 100)
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			gone <- p.Name
		}
	}}); err != nil {
		t.Fatal(err)
	}
	nodes.Informer()
	f.Start(ctx.Done())
	defer f.Shutdown()
	defer stop()
	for kind, ok := range f.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("informer of %v never synced", kind)
		}
	}
	before, err := pods.Lister().Pods("default").List(labels.SelectorFromSet(labels.Set{"app": "web"}))
	if err != nil || len(before) != 3 {
		t.Fatalf("the cache has %d pods of web, want 3 (%v)", len(before), err)
	}
	r.minor.Store("1.32")
	if _, err := cs.AppsV1().Deployments("default").Patch(ctx, "web", "application/strategic-merge-patch+json", restart("now"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for range before {
		select {
		case <-gone:
		case <-ctx.Done():
			t.Fatal("the informer did not see the old pods go")
		}
	}
	list, err := cs.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range list.Items {
		got, err := pods.Lister().Pods("default").Get(want.Name)
		if err != nil {
			t.Errorf("the cache lacks pod %s: %v", want.Name, err)
		} else if got.UID != want.UID || got.Spec.NodeName == "" {
			t.Errorf("the cache has another pod %s: %+v", want.Name, got.ObjectMeta)
		}
	}
}

// TestWatchResume stops a watch and goes on from the last resourceVersion: nothing is
// missed and nothing comes twice.
func TestWatchResume(t *testing.T) {
	r := start(t, nil)
	cm := r.client(mimeProto).CoreV1().ConfigMaps("default")
	ctx := deadline(t)
	list, err := cm.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rv := list.ResourceVersion
	var want, got []string
	for round := range 3 {
		for i := range 4 {
			name := fmt.Sprintf("c-%d-%d", round, i)
			want = append(want, name)
			r.seed(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
		w, err := cm.Watch(ctx, metav1.ListOptions{ResourceVersion: rv})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			e := <-w.ResultChan()
			c := e.Object.(*corev1.ConfigMap)
			got, rv = append(got, c.Name), c.ResourceVersion
		}
		w.Stop()
	}
	if !slices.Equal(got, want) {
		t.Errorf("watched %v, want %v", got, want)
	}
}

// TestTooOld checks the three answers to a resource version that is gone: an ERROR event
// of a watch, 410 of an exact list, 410 with a fresh token of a continued list.
func TestTooOld(t *testing.T) {
	r := start(t, nil)
	for i := range 5 {
		r.seed(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", i)}})
	}
	cm := r.client(mimeJSON).CoreV1().ConfigMaps("default")
	ctx := deadline(t)
	first, err := cm.List(ctx, metav1.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.seed(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}})
	r.c.Compact()
	w, err := cm.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	e := <-w.ResultChan()
	if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), "too old resource version") {
		t.Errorf("watch from a compacted version: %s %v", e.Type, err)
	}
	if _, open := <-w.ResultChan(); open {
		t.Error("the watch goes on after its error")
	}
	_, err = cm.List(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("exact list at a compacted version: %v", err)
	}
	_, err = cm.List(ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		t.Fatalf("continued list at a compacted version: %v", err)
	}
	rest, err := cm.List(ctx, metav1.ListOptions{Continue: status.Status().Continue})
	if err != nil {
		t.Fatal(err)
	}
	if got := configMaps(rest); !slices.Equal(got, []string{"c2", "c3", "c4", "late"}) {
		t.Errorf("the inconsistent rest is %v", got)
	}
	// The answer asks to be tried again, which client-go would do for ten seconds.
	err = r.client(mimeJSON).CoreV1().RESTClient().Get().Namespace("default").Resource("configmaps").
		Param("resourceVersion", "999999").MaxRetries(0).Do(ctx).Error()
	if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("list at a version to come: %v", err)
	}
}

func configMaps(l *corev1.ConfigMapList) []string {
	var out []string
	for _, c := range l.Items {
		out = append(out, c.Name)
	}
	return out
}

// TestPages reads a list in pages while it changes: the pages are of one moment.
func TestPages(t *testing.T) {
	r := start(t, nil)
	mk := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"n": name}}}
	}
	for i := range 7 {
		r.seed(mk(fmt.Sprint("c", i)))
	}
	cm := r.client(mimeProto).CoreV1().ConfigMaps("")
	ctx := deadline(t)
	var got []string
	o := metav1.ListOptions{Limit: 3}
	for page := 0; ; page++ {
		l, err := cm.List(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, configMaps(l)...)
		if page == 0 {
			if l.RemainingItemCount == nil || *l.RemainingItemCount != 4 {
				t.Errorf("remainingItemCount of the first page is %v, want 4", l.RemainingItemCount)
			}
			r.seed(mk("c05"), mk("c9"))
			if err := r.client(mimeJSON).CoreV1().ConfigMaps("default").Delete(ctx, "c4", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if o.Continue = l.Continue; o.Continue == "" {
			break
		}
	}
	if want := []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6"}; !slices.Equal(got, want) {
		t.Errorf("the pages hold %v, want %v", got, want)
	}
	some, err := cm.List(ctx, metav1.ListOptions{LabelSelector: "n in (c1, c9)", Limit: 1})
	if err != nil || some.Continue == "" || some.RemainingItemCount != nil || !slices.Equal(configMaps(some), []string{"c1"}) {
		t.Errorf("a page with a selector: %v, %+v, %v", configMaps(some), some.ListMeta, err)
	}
	if l, err := cm.List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: "0"}); err != nil || len(l.Items) != 8 || l.Continue != "" {
		t.Errorf("a list that any version will do for: %d items (%v), want all 8, as from the watch cache", len(l.Items), err)
	}
	if _, err := cm.List(ctx, metav1.ListOptions{Continue: "bogus"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a made-up token: %v", err)
	}
	if _, err := cm.List(ctx, metav1.ListOptions{FieldSelector: "data.x=1"}); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "field label not supported: data.x") {
		t.Errorf("an unknown field: %v", err)
	}
}

// TestWatchSelector checks that objects which begin or cease to match a selector are
// ADDED and DELETED, and that bookmarks come.
func TestWatchSelector(t *testing.T) {
	r := start(t, func(o *kube.Options) { o.Bookmark = 2 * time.Millisecond })
	cm := r.client(mimeJSON).CoreV1().ConfigMaps("default")
	ctx := deadline(t)
	w, err := cm.Watch(ctx, metav1.ListOptions{LabelSelector: "on=yes", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	set := func(v string) {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"on": v}}}
		if _, err := cm.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.seed(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", Labels: map[string]string{"on": "no"}}})
	set("yes")
	set("no")
	set("yes")
	if err := cm.Delete(ctx, "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	bookmarks := 0
	for e := range w.ResultChan() {
		if e.Type == watch.Bookmark {
			if bookmarks++; len(got) == 4 {
				break
			}
			continue
		}
		c := e.Object.(*corev1.ConfigMap)
		got = append(got, string(e.Type)+" "+c.Labels["on"])
	}
	if want := []string{"ADDED yes", "DELETED yes", "ADDED yes", "DELETED yes"}; !slices.Equal(got, want) {
		t.Errorf("watched %v, want %v", got, want)
	}
}
