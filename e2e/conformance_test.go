package e2e_test

import (
	"sync/atomic"
	"testing"
	"time"

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
			Raise: func(_ *testing.T, m string) { minor.Store(m) },
			Compact: func(t *testing.T) {
				if err := c.Plane().Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			Patience: 150 * time.Second, // a CronJob is up to a minute off
		}
	})
}
