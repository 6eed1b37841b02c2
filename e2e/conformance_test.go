package e2e_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/kube/conformance"
)

// TestConformance holds a real control plane to the suite that the sandbox's own
// Kubernetes is held to: what both pass, eksbg may rely on.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Target {
		var minor atomic.Value
		minor.Store("1.31")
		c, cfg := alone(t, kube.Options{
			Name: "blue", Region: "eu-central-1", Seed: 7, Version: func() string { return minor.Load().(string) },
			Fargate: kube.FargateOptions{
				Startup: 12 * time.Millisecond, Jitter: 6 * time.Millisecond, Stop: 4 * time.Millisecond,
				Profiles: []kube.Profile{{Name: "all", Selectors: []kube.Selector{{Namespace: conformance.NamespacePrefix + "*"}}}},
			},
		})
		if err := c.Define(t.Context()); err != nil {
			t.Fatal(err)
		}
		return conformance.Target{
			Config: cfg, Minor: "1.31",
			Raise:  func(_ *testing.T, m string) { minor.Store(m) },
			Narrow: func(t *testing.T, namespace string) *rest.Config { return narrow(t, cfg, namespace) },
			Compact: func(t *testing.T) {
				if err := c.Plane().Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			Patience: 150 * time.Second, // a CronJob is up to a minute off
		}
	})
}

// narrow gives the user "narrow", as whom an administrator acts, a Role to read the pods of
// a namespace, and returns once the API server goes by it.
func narrow(t *testing.T, admin *rest.Config, namespace string) *rest.Config {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "narrow"}
	_, err = k.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}}, metav1.CreateOptions{})
	_, bindErr := k.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "narrow"}}}, metav1.CreateOptions{})
	if err := errors.Join(err, bindErr); err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "narrow", Groups: []string{"system:authenticated"}}
	if k, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(25 * time.Millisecond)
	defer again.Stop()
	for {
		r, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.Allowed {
			return cfg
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the Role of user narrow does not come into force: %+v", r.Status)
		case <-again.C:
		}
	}
}
