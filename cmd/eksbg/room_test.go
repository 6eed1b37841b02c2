package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// narrow gives green one subnet of 27 addresses, with as many more pods as are wanted
// beside the 22 of the scenario.
func narrow(more int32) func(*sandbox.Scenario) {
	return func(s *sandbox.Scenario) {
		green := s.Side(sandbox.Green)
		green.Subnets = []sandbox.Subnet{{ID: "subnet-0e1a000000000000a", CIDR: "10.21.0.0/27", Zone: "ap-northeast-1a"}}
		if more > 0 {
			green.Workloads = append(green.Workloads, sandbox.Workload{Namespace: "shop", Kind: "Deployment", Name: "filler", Replicas: &more, Image: "busybox", Strategy: "RollingUpdate"})
		}
	}
}

// unplaced are the pods of green for which Fargate had no room at some time.
func unplaced(t *testing.T, box *sandbox.Sandbox) (names []string) {
	t.Helper()
	events, err := kubeOf(t, box, sandbox.Green).CoreV1().Events(corev1.NamespaceAll).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedScheduling"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		names = append(names, e.InvolvedObject.Name+": "+e.Message)
	}
	return names
}

// A restart takes nothing for its surge that is not there: with room for a few pods more
// none ever waits for a place.
func TestARestartStaysWithinTheRoom(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sandbox.Scenario){
		"five addresses to spare": narrow(0),
		// 22 pods of 0.25 vCPU run in each cluster.
		"one vCPU to spare": func(s *sandbox.Scenario) { s.Quotas.VCPU = 12 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := startSandbox(t, "hot", testSpeed, change)
			applyExit(t, box, 4, "--until", "green/restart/1")
			if got := unplaced(t, box); len(got) > 0 {
				t.Errorf("Fargate had no room for %d pods:\n%s", len(got), strings.Join(got, "\n"))
			}
		})
	}
}

// Without an address to spare nothing that surges is begun: the run waits as long as a
// rollout may take, stops with the numbers, and has changed nothing.
func TestARestartWithoutRoomStops(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed, narrow(5), func(s *sandbox.Scenario) { s.Plan.Timeout = 8 * time.Second })
	out := applyExit(t, box, 4, "--until", "green/restart/1")
	says(t, out, "kube-system/Deployment/coredns: needs 1 free address beside what runs", "have 0 free", "eksbg jobs clean")
	for _, r := range requests(t, box) {
		if r.Changing && strings.HasPrefix(r.Call, "k8s:") && strings.Contains(r.Call, "deployments") {
			t.Errorf("%s %s was sent", r.Call, r.Object)
		}
	}
	if got := unplaced(t, box); len(got) > 0 {
		t.Errorf("Fargate had no room for %d pods:\n%s", len(got), strings.Join(got, "\n"))
	}
}
