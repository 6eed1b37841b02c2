package preflight_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/state"
)

const jane = "arn:aws:sts::111122223333:assumed-role/ops/jane"

// authority is an API server that only answers what its caller may do.
type authority struct {
	mu sync.Mutex
	// allows judges; unsure gives the error of an authorizer.
	allows func(a authorizationv1.ResourceAttributes) bool
	unsure func(a authorizationv1.ResourceAttributes) string
	// broken is what every question is answered with instead; anonymous refuses to say who asks.
	broken    error
	anonymous bool
	asked     []string
	who       int
}

func (s *authority) client() kubernetes.Interface {
	k := fake.NewClientset()
	k.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		attrs := *r.Spec.ResourceAttributes
		s.asked = append(s.asked, strings.TrimSpace(attrs.Verb+" "+attrs.Group+"/"+attrs.Resource+"/"+attrs.Subresource+" "+attrs.Namespace+" "+attrs.Name))
		r.Status.Allowed = s.allows(attrs)
		if s.unsure != nil {
			r.Status.EvaluationError = s.unsure(attrs)
		}
		return true, r, s.broken
	})
	k.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.who++
		if s.anonymous {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "selfsubjectreviews"}, "")
		}
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: jane}}}, nil
	})
	return k
}

// needs are some that differ in all that counts.
var needs = []state.Access{
	{Verb: "update", Resource: "leases.coordination.k8s.io", Namespaces: []string{"kube-system"}, Name: "eksbg", For: "the lock"},
	{Verb: "watch", Resource: "nodes", For: "every restart"},
	{Verb: "patch", Resource: "deployments.apps", Namespaces: []string{"orders", "platform", "shop"}, For: "rolling restarts"},
	{Verb: "create", Resource: "pods/eviction", Namespaces: []string{"orders", "shop"}, For: "owners whose pods go one by one"},
}

func askAbout(t *testing.T, s *authority) []state.Finding {
	t.Helper()
	fs, err := preflight.Access(state.Green, "shop-green", needs, func(context.Context) (kubernetes.Interface, error) { return s.client(), nil }).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(s.asked)
	return fs
}

// Who may do everything is asked about each verb and resource once, however many
// namespaces there are, and not who it is.
func TestWhatIsAllowedIsAskedOnce(t *testing.T) {
	s := &authority{allows: func(authorizationv1.ResourceAttributes) bool { return true }}
	if fs := askAbout(t, s); len(fs) != 0 {
		t.Errorf("found %+v", fs)
	}
	want := []string{"create /pods/eviction", "patch apps/deployments/", "update coordination.k8s.io/leases/ kube-system eksbg", "watch /nodes/"}
	if d := cmp.Diff(want, s.asked); d != "" || s.who != 0 {
		t.Errorf("asked (-want +got), and who %d times:\n%s", s.who, d)
	}
}

// Who may do it in each namespace that is touched, as a Role or a scoped access policy
// allows, may do it.
func TestWhatIsAllowedByNamespaceIsAllowed(t *testing.T) {
	s := &authority{allows: func(a authorizationv1.ResourceAttributes) bool { return a.Namespace != "" || a.Resource == "nodes" }}
	if fs := askAbout(t, s); len(fs) != 0 {
		t.Errorf("found %+v", fs)
	}
	want := []string{"create /pods/eviction", "create /pods/eviction orders", "create /pods/eviction shop", "patch apps/deployments/", "patch apps/deployments/ orders",
		"patch apps/deployments/ platform", "patch apps/deployments/ shop", "update coordination.k8s.io/leases/ kube-system eksbg", "watch /nodes/"}
	if d := cmp.Diff(want, s.asked); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
}

func TestWhatIsDeniedBlocks(t *testing.T) {
	all := map[string]string{
		"access/update/leases.coordination.k8s.io": `may not update leases.coordination.k8s.io in namespace kube-system of cluster shop-green, needed for: the lock|` +
			`- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [eksbg], verbs: [update]}`,
		"access/watch/nodes": `may not watch nodes in cluster shop-green, needed for: every restart|- {apiGroups: [""], resources: [nodes], verbs: [watch]}`,
		"access/patch/deployments.apps": `may not patch deployments.apps in namespaces orders, platform, shop of cluster shop-green|` +
			`- {apiGroups: [apps], resources: [deployments], verbs: [patch]}`,
		"access/create/pods/eviction": `may not create pods/eviction in namespaces orders, shop of cluster|- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}`,
	}
	tests := map[string]struct {
		allows func(authorizationv1.ResourceAttributes) bool
		want   map[string]string
	}{
		"everything": {func(authorizationv1.ResourceAttributes) bool { return false }, all},
		"one resource": {func(a authorizationv1.ResourceAttributes) bool { return a.Resource != "nodes" },
			map[string]string{"access/watch/nodes": all["access/watch/nodes"]}},
		"one namespace": {func(a authorizationv1.ResourceAttributes) bool {
			return a.Resource != "deployments" || a.Namespace == "orders"
		},
			map[string]string{"access/patch/deployments.apps": `in namespaces platform, shop of|verbs: [patch]`}},
		"all namespaces but one": {func(a authorizationv1.ResourceAttributes) bool {
			return a.Subresource == "" || a.Namespace == "shop"
		}, map[string]string{"access/create/pods/eviction": "in namespace orders of|pods/eviction"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &authority{allows: tt.allows}
			fs := askAbout(t, s)
			for i, f := range fs {
				text, cure, _ := strings.Cut(tt.want[f.Check], "|")
				if text == "" || f.Severity != state.SeverityError || f.Side != state.Green || !f.Blocks() || !strings.HasPrefix(f.Text, jane+" ") ||
					!strings.Contains(f.Text, text) || !strings.Contains(f.Cure, cure) || strings.Contains(f.Cure, "access entry") != (i == 0) {
					t.Errorf("found %+v", f)
				}
			}
			if len(fs) != len(tt.want) || s.who != 1 {
				t.Errorf("%d findings, want %d; asked who %d times", len(fs), len(tt.want), s.who)
			}
		})
	}
}

// What the API server cannot tell is not denied, and no pass.
func TestWhatIsNotKnownBlocks(t *testing.T) {
	none := func(authorizationv1.ResourceAttributes) bool { return false }
	for name, tt := range map[string]struct {
		s     *authority
		says  []string
		other int
	}{
		"nobody may ask": {&authority{allows: none, broken: apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "", errors.New("no rule"))},
			[]string{"whether the caller may", "no rule"}, 0},
		"an authorizer fails": {&authority{allows: none, unsure: func(a authorizationv1.ResourceAttributes) string {
			if a.Resource == "deployments" {
				return "the authorizer did not answer"
			}
			return ""
		}}, []string{"whether " + jane + " may", "patch deployments: the authorizer did not answer"}, 3},
		"an authorizer fails for a namespace": {&authority{
			allows: func(a authorizationv1.ResourceAttributes) bool {
				return a.Resource != "deployments" || a.Namespace == "shop"
			},
			unsure: func(a authorizationv1.ResourceAttributes) string {
				if a.Resource == "deployments" && a.Namespace == "orders" || a.Resource == "nodes" {
					return "the authorizer did not answer"
				}
				return ""
			}, anonymous: true}, []string{"whether the caller may", "patch deployments in orders: the authorizer did not answer"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			fs := askAbout(t, tt.s)
			if len(fs) != 1+tt.other || fs[0].Check != preflight.AccessUnknown || fs[0].Severity != state.SeverityUnknown || !fs[0].Blocks() ||
				!strings.Contains(fs[0].Cure, "system:basic-user") {
				t.Fatalf("found %+v", fs)
			}
			for _, part := range tt.says {
				if !strings.Contains(fs[0].Text, part) {
					t.Errorf("does not say %q: %s", part, fs[0].Text)
				}
			}
		})
	}
}

// An API server that is away or fails says nothing about rights, nor does one that does
// not know who asks: a token that has expired is cured by a login.
func TestWhatIsNoRefusalIsNoFinding(t *testing.T) {
	for name, broken := range map[string]error{
		"away":    errors.New("connection refused"),
		"fails":   apierrors.NewInternalError(errors.New("etcd has no leader")),
		"unknown": apierrors.NewUnauthorized("Unauthorized"),
	} {
		t.Run(name, func(t *testing.T) {
			s := &authority{allows: func(authorizationv1.ResourceAttributes) bool { return true }, broken: broken}
			check := preflight.Access(state.Green, "shop-green", needs, func(context.Context) (kubernetes.Interface, error) { return s.client(), nil })
			if fs, err := check.Run(t.Context()); !errors.Is(err, broken) || len(fs) != 0 || !strings.Contains(err.Error(), "shop-green") || len(s.asked) != 1 {
				t.Errorf("%+v, %v, asked %v", fs, err, s.asked)
			}
		})
	}
}

func TestAnAccessCheckThatIsInterruptedIsNoFinding(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &authority{allows: func(authorizationv1.ResourceAttributes) bool { cancel(); return true }}
	check := preflight.Access(state.Green, "shop-green", needs, func(context.Context) (kubernetes.Interface, error) { return s.client(), nil })
	if fs, err := check.Run(ctx); !errors.Is(err, context.Canceled) || len(fs) != 0 {
		t.Errorf("%+v, %v", fs, err)
	}
	away := errors.New("no such host")
	check = preflight.Access(state.Green, "shop-green", needs, func(context.Context) (kubernetes.Interface, error) { return nil, away })
	if fs, err := check.Run(t.Context()); !errors.Is(err, away) || len(fs) != 0 || !strings.Contains(err.Error(), "shop-green") {
		t.Errorf("%+v, %v", fs, err)
	}
}

func TestManyNamespacesAreCounted(t *testing.T) {
	need := []state.Access{{Verb: "patch", Resource: "deployments.apps", Namespaces: []string{"a", "b", "c", "d", "e", "f", "g"}}}
	s := &authority{allows: func(authorizationv1.ResourceAttributes) bool { return false }}
	fs, err := preflight.Access(state.Blue, "shop-blue", need, func(context.Context) (kubernetes.Interface, error) { return s.client(), nil }).Run(t.Context())
	if err != nil || len(fs) != 1 || !strings.Contains(fs[0].Text, "in namespaces a, b, c, d, e and 2 more of") {
		t.Errorf("%+v, %v", fs, err)
	}
}

// The rules are YAML that can be pasted as it stands.
func TestRulesArePastable(t *testing.T) {
	s := &authority{allows: func(authorizationv1.ResourceAttributes) bool { return false }}
	var text strings.Builder
	for _, f := range askAbout(t, s) {
		text.WriteString(f.Cure[strings.LastIndex(f.Cure, "\n")+1:] + "\n")
	}
	var got []map[string][]string
	if err := yaml.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatalf("%v:\n%s", err, text.String())
	}
	want := []map[string][]string{
		{"apiGroups": {"apps"}, "resources": {"deployments"}, "verbs": {"patch"}},
		{"apiGroups": {"coordination.k8s.io"}, "resources": {"leases"}, "resourceNames": {"eksbg"}, "verbs": {"update"}},
		{"apiGroups": {""}, "resources": {"nodes"}, "verbs": {"watch"}},
		{"apiGroups": {""}, "resources": {"pods/eviction"}, "verbs": {"create"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
