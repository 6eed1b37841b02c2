package conformance

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

var readChecks = []check{
	{name: "Version", run: version},
	{name: "Pages", run: pages},
	{name: "Watch", run: watchFrom},
	{name: "Expired", run: expired, alone: true},
}

// version: /version says the minor of EKS.
func version(c *Case) {
	v := must(c.cs.Discovery().ServerVersion())(c)
	if got := v.Major + "." + v.Minor; got != c.Minor {
		c.Errorf("/version says %s, want %s", got, c.Minor)
	}
}

func (c *Case) configMaps(n int) {
	for i := range n {
		must(c.cs.CoreV1().ConfigMaps(c.ns).Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("m%02d", i), Labels: map[string]string{"parity": fmt.Sprint(i % 2)}}}, metav1.CreateOptions{}))(c)
	}
}

// pages: a list in pages is one state, in order, in JSON and protobuf alike.
func pages(c *Case) {
	const n = 7
	c.configMaps(n)
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		cfg := rest.CopyConfig(c.Config)
		cfg.ContentType, cfg.AcceptContentTypes = media, media
		cs, _ := c.clients(cfg)
		maps := cs.CoreV1().ConfigMaps(c.ns)
		var names []string
		var rv string
		opts := metav1.ListOptions{Limit: 3, LabelSelector: "parity"}
		for page := 0; ; page++ {
			l := must(maps.List(c.ctx, opts))(c)
			if rv == "" {
				rv = l.ResourceVersion
			}
			if l.ResourceVersion != rv {
				c.Errorf("%s: page %d is of resource version %s, the first of %s", media, page, l.ResourceVersion, rv)
			}
			for _, m := range l.Items {
				names = append(names, m.Name)
			}
			if page == 0 {
				extra := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m99", Labels: map[string]string{"parity": "new"}}}
				made := must(maps.Create(c.ctx, extra, metav1.CreateOptions{}))(c)
				defer func() { _ = maps.Delete(c.ctx, made.Name, metav1.DeleteOptions{}) }()
			}
			if opts.Continue = l.Continue; l.Continue == "" {
				break
			}
		}
		if media == "application/json" && len(names) != n {
			c.Errorf("%s: pages held %v", media, names)
		}
		if !slices.IsSorted(names) {
			c.Errorf("%s: pages are not in order: %v", media, names)
		}
	}
}

// watchFrom: a watch from a list's resource version misses nothing and repeats nothing.
func watchFrom(c *Case) {
	c.configMaps(2)
	maps := c.cs.CoreV1().ConfigMaps(c.ns)
	l := must(maps.List(c.ctx, metav1.ListOptions{LabelSelector: "parity"}))(c)
	must(maps.Patch(c.ctx, "m00", "application/merge-patch+json", []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{}))(c)
	if err := maps.Delete(c.ctx, "m01", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	must(maps.Patch(c.ctx, "m00", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"parity":null}}}`), metav1.PatchOptions{}))(c)
	var got []string
	follow(c.ctx, maps, metav1.ListOptions{LabelSelector: "parity", ResourceVersion: l.ResourceVersion}, func(e watch.Event) bool {
		if m, ok := e.Object.(*corev1.ConfigMap); ok {
			got = append(got, string(e.Type)+" "+m.Name)
		}
		return len(got) == 3
	})
	if want := []string{"MODIFIED m00", "DELETED m01", "DELETED m00"}; !slices.Equal(got, want) {
		c.Errorf("the watch brought %v, want %v", got, want)
	}
}

// expired: after a compaction an old continue token is 410 Gone, with one to go on with,
// and so is a watch from an old resource version.
func expired(c *Case) {
	if c.Compact == nil {
		c.Skip("this target cannot be compacted")
	}
	c.configMaps(4)
	maps := c.cs.CoreV1().ConfigMaps(c.ns)
	l := must(maps.List(c.ctx, metav1.ListOptions{Limit: 1, LabelSelector: "parity"}))(c)
	must(maps.Patch(c.ctx, "m00", "application/merge-patch+json", []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{}))(c)
	c.Compact(c.T)
	_, err := maps.List(c.ctx, metav1.ListOptions{Limit: 1, LabelSelector: "parity", Continue: l.Continue})
	if !apierrors.IsResourceExpired(err) {
		c.Fatalf("an old token is answered with %v", err)
	}
	next := statusOf(err).Continue
	if next == "" {
		c.Fatal("the answer holds no token to go on with")
	}
	left := must(maps.List(c.ctx, metav1.ListOptions{LabelSelector: "parity", Continue: next}))(c)
	if len(left.Items) != 3 {
		c.Errorf("going on brought %d, want 3", len(left.Items))
	}
}
