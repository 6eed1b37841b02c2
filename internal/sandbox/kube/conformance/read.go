package conformance

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

var readChecks = []check{
	{name: "Version", run: version},
	{name: "Pages", run: pages},
	{name: "Watch", run: watchFrom},
	{name: "StreamingList", run: streamingList},
	{name: "Metadata", run: metadataOnly},
	{name: "Kept", run: kept},
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

// streamingList: a watch that asks for the present state first gets it as ADDED, then a
// bookmark that says so, and then the changes.
func streamingList(c *Case) {
	c.configMaps(2)
	api := c.cs.CoreV1().ConfigMaps(c.ns)
	var got []string
	follow(c.ctx, api, metav1.ListOptions{LabelSelector: "parity", SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, func(e watch.Event) bool {
		m, ok := e.Object.(*corev1.ConfigMap)
		switch {
		case !ok:
			got = append(got, string(e.Type))
		case e.Type == watch.Bookmark && m.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			got = append(got, "END")
			must(api.Patch(c.ctx, "m01", types.MergePatchType, []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{}))(c)
		case e.Type == watch.Bookmark: // may come at any time
		default:
			got = append(got, string(e.Type)+" "+m.Name)
		}
		return len(got) == 4
	})
	if len(got) == 4 { // the initial state comes in no order
		slices.Sort(got[:2])
	}
	if want := []string{"ADDED m00", "ADDED m01", "END", "MODIFIED m01"}; !slices.Equal(got, want) {
		c.Errorf("the watch brought %v, want %v", got, want)
	}
}

// metadataOnly: lists and gets of metadata alone, in protobuf, of custom resources too.
func metadataOnly(c *Case) {
	cfg := metadata.ConfigFor(c.Config)
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(hc.CloseIdleConnections)
	cl, err := metadata.NewForConfigAndClient(cfg, hc)
	if err != nil {
		c.Fatal(err)
	}
	c.configMaps(3)
	api := cl.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(c.ns)
	l := must(api.List(c.ctx, metav1.ListOptions{LabelSelector: "parity=0", Limit: 1}))(c)
	if len(l.Items) != 1 || l.Items[0].Name != "m00" || l.Items[0].Labels["parity"] != "0" || l.Continue == "" {
		c.Errorf("the list holds %+v", l)
	}
	one := must(api.Get(c.ctx, "m01", metav1.GetOptions{}))(c)
	if one.UID == "" || one.Namespace != c.ns {
		c.Errorf("got %+v", one.ObjectMeta)
	}
	if _, err := cl.Resource(rollouts).Namespace(c.ns).List(c.ctx, metav1.ListOptions{}); err != nil {
		c.Errorf("metadata of a custom resource: %v", err)
	}
}

// kept: what is only stored gets its defaults: above all, a webhook that does not say
// otherwise fails closed.
func kept(c *Case) {
	hooks := c.cs.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	name := c.ns + "-hook"
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "hook.example.com", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: c.ns, Name: "hook"}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}}}},
	}}}
	made := must(hooks.Create(c.ctx, hook, metav1.CreateOptions{}))(c)
	c.Cleanup(func() { _ = hooks.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	h := made.Webhooks[0]
	if *h.FailurePolicy != admissionv1.Fail || *h.TimeoutSeconds != 10 || *h.ClientConfig.Service.Port != 443 || *h.MatchPolicy != admissionv1.Equivalent || made.Generation != 1 {
		c.Errorf("the webhook is %+v at generation %d", h, made.Generation)
	}
	t := template("kept")
	pt := must(c.cs.CoreV1().PodTemplates(c.ns).Create(c.ctx, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Template: t}, metav1.CreateOptions{}))(c)
	if pt.Generation != 1 || pt.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways || pt.Template.Labels["app"] != "kept" {
		c.Errorf("the pod template is %+v", pt)
	}
	if err := c.cs.CoreV1().PodTemplates(c.ns).Delete(c.ctx, "kept", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pt.UID))}); err != nil {
		c.Error(err)
	}
	awaitGone(c, c.cs.CoreV1().PodTemplates(c.ns), "kept", "")
}
