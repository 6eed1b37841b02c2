package e2e_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/e2e/cluster"
)

// inGit is the stamp that a manifest in Git has, exported from a cluster once.
const inGit = "2026-01-05T09:00:00Z"

// keeper is a GitOps controller that keeps one Deployment as it is in Git, by server-side
// apply: it puts the stamp of a rolling restart back to the one in Git.
type keeper struct {
	manager string
	client  *clientset.Clientset
	object  *appsv1.Deployment // as it is in Git
	stop    func()
}

// keep makes a Deployment of two replicas as its keeper has it, and has it kept so until
// stop or the end of the test.
func keep(t *testing.T, c *cluster.Cluster, namespace, name, manager string) *keeper {
	t.Helper()
	app := map[string]string{"app": name}
	k := &keeper{manager: manager, client: direct(t, c), object: &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app, Annotations: map[string]string{restartKey: inGit}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: name}}},
			},
		},
	}}
	if err := k.apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() string {
		d, err := k.client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if d.Status.ReadyReplicas != 2 {
			return name + " does not come up"
		}
		return ""
	})
	w, err := k.client.AppsV1().Deployments(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var ends sync.WaitGroup
	ends.Go(func() { k.revert(ctx, w) })
	k.stop = func() {
		cancel()
		w.Stop()
		ends.Wait()
	}
	t.Cleanup(k.stop)
	return k
}

// revert applies what is in Git whenever the stamp is another one.
func (k *keeper) revert(ctx context.Context, w watch.Interface) {
	for e := range w.ResultChan() {
		d, ok := e.Object.(*appsv1.Deployment)
		for ok && ctx.Err() == nil && d.Spec.Template.Annotations[restartKey] != inGit {
			if err := k.apply(ctx); err == nil || !apierrors.IsConflict(err) {
				break // the next change shows what is still to be done
			}
		}
	}
}

func (k *keeper) apply(ctx context.Context) error {
	body, err := json.Marshal(k.object)
	if err != nil {
		return err
	}
	_, err = k.client.AppsV1().Deployments(k.object.Namespace).Patch(ctx, k.object.Name, types.ApplyYAMLPatchType, body,
		metav1.PatchOptions{FieldManager: k.manager, Force: ptr.To(true)})
	return err
}
