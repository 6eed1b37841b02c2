package conformance

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var accessChecks = []check{
	{name: "AccessOfAnAdministrator", run: accessOfAdmin},
	{name: "AccessOfANarrowUser", run: accessOfNarrow},
}

// narrowUser is the name of the user that Target.Narrow is for.
const narrowUser = "narrow"

// in is a question about a resource; namespace "" is all of them.
func in(namespace, verb, group, resource, sub string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: sub}
}

// may asks whether the caller of a client may do something.
func (c *Case) may(cs kubernetes.Interface, a authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	c.Helper()
	r := must(cs.AuthorizationV1().SelfSubjectAccessReviews().Create(c.ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}, metav1.CreateOptions{}))(c)
	if r.Spec.ResourceAttributes == nil || *r.Spec.ResourceAttributes != a {
		c.Errorf("asked about %+v, the answer is about %+v", a, r.Spec.ResourceAttributes)
	}
	return r.Status
}

// accessOfAdmin: an administrator may do everything, and is told so; a question about
// nothing is refused; nothing is kept.
func accessOfAdmin(c *Case) {
	for _, a := range []authorizationv1.ResourceAttributes{
		in(c.ns, "patch", "apps", "deployments", ""), in("", "watch", "", "pods", ""), in(c.ns, "create", "", "pods", "eviction"),
		in("", "list", "", "nodes", ""), in(c.ns, "patch", "argoproj.io", "rollouts", ""), in("", "*", "*", "*", ""),
	} {
		if s := c.may(c.cs, a); !s.Allowed || s.Denied || s.EvaluationError != "" {
			c.Errorf("%+v: %+v", a, s)
		}
	}
	reviews := c.cs.AuthorizationV1().SelfSubjectAccessReviews()
	path := must(reviews.Create(c.ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/version"}}}, metav1.CreateOptions{}))(c)
	if !path.Status.Allowed {
		c.Errorf("/version: %+v", path.Status)
	}
	_, err := reviews.Create(c.ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "exactly one of nonResourceAttributes or resourceAttributes must be specified") {
		c.Errorf("a question about nothing: %v", err)
	}
	err = c.cs.AuthorizationV1().RESTClient().Get().Resource("selfsubjectaccessreviews").Do(c.ctx).Error()
	if !apierrors.IsMethodNotSupported(err) {
		c.Errorf("list of questions: %v", err)
	}
	me := must(c.cs.AuthenticationV1().SelfSubjectReviews().Create(c.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(c)
	if me.Status.UserInfo.Username == "" || len(me.Status.UserInfo.Groups) == 0 {
		c.Errorf("I am %+v", me.Status.UserInfo)
	}
}

// accessOfNarrow: a user who may read the pods of one namespace is told that and no more,
// in both media types; what it may not do is refused, in words that name it all.
func accessOfNarrow(c *Case) {
	must(c.cs.AppsV1().Deployments(c.ns).Create(c.ctx, deployment("web", 1), metav1.CreateOptions{}))(c)
	pod := c.awaitPods("app=web", "are ready", whole(1))[0]
	cfg := c.Narrow(c.T, c.ns)
	cfg.QPS = -1
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		cfg := rest.CopyConfig(cfg)
		cfg.ContentType, cfg.AcceptContentTypes = media, media+","+runtime.ContentTypeJSON
		cs, _ := c.clients(cfg)
		c.narrowIsTold(cs)
		c.narrowIsRefused(cs, pod.Name)
	}
}

func (c *Case) narrowIsTold(cs kubernetes.Interface) {
	c.Helper()
	for _, want := range []struct {
		a       authorizationv1.ResourceAttributes
		allowed bool
	}{
		{in(c.ns, "list", "", "pods", ""), true}, {in(c.ns, "watch", "", "pods", ""), true}, {in("", "list", "", "pods", ""), false},
		{in(c.ns+"-2", "list", "", "pods", ""), false}, {in(c.ns, "delete", "", "pods", ""), false}, {in(c.ns, "*", "", "pods", ""), false},
		{in(c.ns, "create", "", "pods", "eviction"), false}, {in(c.ns, "get", "", "pods", "eviction"), false},
		{in(c.ns, "list", "apps", "pods", ""), false}, {in(c.ns, "patch", "apps", "deployments", ""), false}, {in("", "list", "", "nodes", ""), false},
	} {
		if s := c.may(cs, want.a); s.Allowed != want.allowed || s.Denied || s.EvaluationError != "" {
			c.Errorf("%+v: %+v, want allowed %v", want.a, s, want.allowed)
		}
	}
	me := must(cs.AuthenticationV1().SelfSubjectReviews().Create(c.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(c)
	if me.Status.UserInfo.Username != narrowUser {
		c.Errorf("I am %+v, want %s", me.Status.UserInfo, narrowUser)
	}
	if _, err := cs.Discovery().ServerVersion(); err != nil {
		c.Errorf("the version: %v", err)
	}
	if l := must(cs.CoreV1().Pods(c.ns).List(c.ctx, metav1.ListOptions{}))(c); len(l.Items) != 1 {
		c.Errorf("%d pods are seen", len(l.Items))
	}
}

func (c *Case) narrowIsRefused(cs kubernetes.Interface, pod string) {
	c.Helper()
	pods := cs.CoreV1().Pods(c.ns)
	for words, call := range map[string]func() error{
		`pods "` + pod + `" is forbidden: User "narrow" cannot delete resource "pods" in API group "" in the namespace "` + c.ns + `"`: func() error {
			return pods.Delete(c.ctx, pod, metav1.DeleteOptions{})
		},
		`pods is forbidden: User "narrow" cannot list resource "pods" in API group "" at the cluster scope`: func() error {
			_, err := cs.CoreV1().Pods(corev1.NamespaceAll).List(c.ctx, metav1.ListOptions{})
			return err
		},
		`pods is forbidden: User "narrow" cannot watch resource "pods" in API group "" at the cluster scope`: func() error {
			_, err := cs.CoreV1().Pods(corev1.NamespaceAll).Watch(c.ctx, metav1.ListOptions{})
			return err
		},
		`nodes is forbidden: User "narrow" cannot list resource "nodes" in API group "" at the cluster scope`: func() error {
			_, err := cs.CoreV1().Nodes().List(c.ctx, metav1.ListOptions{})
			return err
		},
		`pods "` + pod + `" is forbidden: User "narrow" cannot create resource "pods/eviction" in API group "" in the namespace "` + c.ns + `"`: func() error {
			return pods.EvictV1(c.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: c.ns}})
		},
		`deployments.apps "web" is forbidden: User "narrow" cannot patch resource "deployments" in API group "apps" in the namespace "` + c.ns + `"`: func() error {
			_, err := cs.AppsV1().Deployments(c.ns).Patch(c.ctx, "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		},
		`deployments.apps is forbidden: User "narrow" cannot create resource "deployments" in API group "apps" in the namespace "` + c.ns + `"`: func() error {
			_, err := cs.AppsV1().Deployments(c.ns).Create(c.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "more"}}, metav1.CreateOptions{})
			return err
		},
	} {
		err := call()
		if s := statusOf(err); !apierrors.IsForbidden(err) || s.Code != 403 || s.Message != words {
			c.Errorf("code %d: %q, want %q", s.Code, s.Message, words)
		}
	}
}
