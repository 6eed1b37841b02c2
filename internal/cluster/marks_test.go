package cluster_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/eksbg/eksbg/internal/cluster"
)

// What a restart has left changed is known by its marks, so a list keeps them.
func TestMarksAreKept(t *testing.T) {
	w := newWorld(t)
	surged, held := shop("surged"), shop("nightly")
	surged.Annotations = map[string]string{cluster.SurgeAnnotation: "20261130T010203Z.1", "other": "x"}
	held.Annotations = map[string]string{cluster.SuspendAnnotation: "2026-11-30T01:02:03Z", "other": "x"}
	held.ResourceVersion = "4711"
	w.api.lists["replicasets"] = &appsv1.ReplicaSetList{Items: []appsv1.ReplicaSet{{ObjectMeta: surged}}}
	w.api.lists["replicationcontrollers"] = &corev1.ReplicationControllerList{Items: []corev1.ReplicationController{{ObjectMeta: surged}}}
	w.api.lists["cronjobs"] = &batchv1.CronJobList{Items: []batchv1.CronJob{{ObjectMeta: held}}}
	inv := w.look(t)
	if len(inv.Workloads) != 2 || len(inv.CronJobs) != 1 {
		t.Fatalf("%+v", inv)
	}
	for _, got := range inv.Workloads {
		if got.Mark != "20261130T010203Z.1" {
			t.Errorf("%s: mark %q", got, got.Mark)
		}
	}
	if got := inv.CronJobs[0]; got.Mark != "2026-11-30T01:02:03Z" || got.ResourceVersion != "4711" {
		t.Errorf("%+v", got)
	}
}
