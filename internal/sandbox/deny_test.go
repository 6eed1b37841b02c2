package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// What is denied in one namespace is denied across all of them, as it is to whoever has a
// Role in each of the others.
func TestDenials(t *testing.T) {
	patch := func(resource, ns string) kube.Attributes {
		return kube.Attributes{Verb: "patch", Group: "apps", Resource: resource, Namespace: ns, Name: "cart"}
	}
	evict := kube.Attributes{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "shop", Name: "cart-0"}
	c := &Cluster{Deny: []Denial{{Verbs: []string{"patch"}, Resources: []string{"deployments"}, Namespaces: []string{"shop"}}, {Resources: []string{"pods/eviction"}}}}
	judge := c.authorize()
	callers := c.groups()
	for what, want := range map[string]struct {
		a       kube.Attributes
		allowed bool
	}{
		"there":              {patch("deployments", "shop"), false},
		"across all":         {patch("deployments", ""), false},
		"elsewhere":          {patch("deployments", "orders"), true},
		"another resource":   {patch("statefulsets", "shop"), true},
		"another verb":       {kube.Attributes{Verb: "get", Group: "apps", Resource: "deployments", Namespace: "shop"}, true},
		"any verb at all":    {kube.Attributes{Verb: "*", Group: "apps", Resource: "deployments", Namespace: "shop"}, false},
		"any resource":       {kube.Attributes{Verb: "patch", Group: "*", Resource: "*", Namespace: "shop"}, false},
		"a subresource":      {evict, false},
		"what it is of":      {kube.Attributes{Verb: "create", Resource: "pods", Namespace: "shop"}, true},
		"a path":             {kube.Attributes{Verb: "get", Path: "/metrics"}, true},
		"another's question": {kube.Attributes{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}, true},
	} {
		if got, _ := judge("jane", callers, want.a); got != want.allowed {
			t.Errorf("%s: allowed %v", what, got)
		}
		if got, _ := judge("kubernetes-admin", []string{administrators}, want.a); !got {
			t.Errorf("%s: denied to the administrator", what)
		}
	}
	if slices.Contains(callers, administrators) {
		t.Errorf("callers are %v", callers)
	}
	open, named := &Cluster{}, &Cluster{Groups: []string{"eksbg"}}
	if open.authorize() != nil || !slices.Contains(open.groups(), administrators) {
		t.Error("without denials somebody is asked, or callers are no administrators")
	}
	if got := named.groups(); !slices.Equal(got, []string{"eksbg", authenticated}) {
		t.Errorf("callers are %v", got)
	}
}

func TestADenialNamesWhat(t *testing.T) {
	sc, err := Load("hot")
	if err != nil {
		t.Fatal(err)
	}
	sc.Clusters.Green.Deny = []Denial{{Verbs: []string{"patch"}}}
	if err := sc.check(); err == nil || !strings.Contains(err.Error(), "clusters.green.deny needs resources") {
		t.Errorf("got %v", err)
	}
}

// A wildcard denies all, as it allows all in RBAC.
func TestDenialsByWildcard(t *testing.T) {
	get := kube.Attributes{Verb: "get", Resource: "pods", Namespace: "shop"}
	evict := kube.Attributes{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "shop"}
	for name, tt := range map[string]struct {
		d          Denial
		get, evict bool
	}{
		"verbs":     {Denial{Verbs: []string{"*"}, Resources: []string{"pods"}}, false, true},
		"resources": {Denial{Verbs: []string{"create"}, Resources: []string{"*"}}, true, false},
		"both":      {Denial{Verbs: []string{"*"}, Resources: []string{"*"}}, false, false},
		"elsewhere": {Denial{Verbs: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"orders"}}, true, true},
	} {
		c := &Cluster{Deny: []Denial{tt.d}}
		judge := c.authorize()
		gets, _ := judge("jane", c.groups(), get)
		evicts, _ := judge("jane", c.groups(), evict)
		if gets != tt.get || evicts != tt.evict {
			t.Errorf("%s: get allowed %v, evict allowed %v", name, gets, evicts)
		}
	}
}

func TestADenialOfAnUnknownVerbIsRefused(t *testing.T) {
	sc, err := Load("hot")
	if err != nil {
		t.Fatal(err)
	}
	sc.Clusters.Green.Deny = []Denial{{Verbs: []string{"get", "*"}, Resources: []string{"pods"}}}
	if err := sc.check(); err != nil {
		t.Errorf("known verbs: %v", err)
	}
	sc.Clusters.Green.Deny[0].Verbs[0] = "evict"
	if err := sc.check(); err == nil || !strings.Contains(err.Error(), `clusters.green.deny: "evict" is no verb`) {
		t.Errorf("got %v", err)
	}
}

// A slip of the pen would deny nothing.
func TestADenialOfAnUnknownResourceIsRefused(t *testing.T) {
	sc, err := Load("hot")
	if err != nil {
		t.Fatal(err)
	}
	sc.Clusters.Green.Deny = []Denial{{Resources: []string{"pods/eviction", "pods/portforward", "deployments", "deployments/scale", "nodes/status", "leases", "selfsubjectaccessreviews", "*"}}}
	if err := sc.check(); err != nil {
		t.Errorf("known resources: %v", err)
	}
	for unknown, says := range map[string]string{
		"deployment":       "did you mean deployments?",
		"Deployments":      "did you mean deployments?",
		"deployments.apps": "did you mean deployments?",
		"deploymets":       "did you mean deployments?",
		"sts":              "did you mean statefulsets?",
		"pod/eviction":     "did you mean pods/eviction?",
		"pods/evictions":   "did you mean pods/eviction?",
		"cronjobs/scale":   "did you mean cronjobs/status?",
		"eviction":         "there are *, clonesets,",
		"*/scale":          "there are *, clonesets,",
		"":                 "there are *, clonesets,",
	} {
		sc.Clusters.Green.Deny[0].Resources[0] = unknown
		if err := sc.check(); err == nil || !strings.Contains(err.Error(), `clusters.green.deny: "`+unknown+`" is no resource`) || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}
