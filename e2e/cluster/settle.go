package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// Settle implements sandbox.Kubernetes. A control plane never says that it has nothing
// left to do, so this asks whether every workload's status says what its spec wants, or
// why not.
func (c *Cluster) Settle(ctx context.Context) error {
	c.fleet.Hurry(true)
	defer c.fleet.Hurry(false)
	return c.poll(ctx, "settle", func() error {
		if err := c.tracker.Wait(ctx); err != nil {
			return err
		}
		return c.settled(ctx)
	})
}

// settled says what is not as it should be, from fresh lists.
func (c *Cluster) settled(ctx context.Context) error {
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; !standing(p) {
			return fmt.Errorf("pod %s/%s is on its way", p.Namespace, p.Name)
		}
	}
	for _, check := range []func(context.Context, []corev1.Pod) error{c.deployments, c.statefulSets, c.replicaSets, c.controllers, c.daemonSets, c.customResources, c.jobs, c.budgets} {
		if err := check(ctx, pods.Items); err != nil {
			return err
		}
	}
	return nil
}

// standing is true for a pod with which nothing happens by itself, a Job's that runs
// aside.
func standing(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	if p.Status.Phase != corev1.PodPending {
		return true
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return true // no room for it
		}
	}
	return false
}

// tally are the unfinished pods that a selector matches: all, and the ready ones.
func tally(pods []corev1.Pod, namespace string, selector *metav1.LabelSelector) (all, ready int32, err error) {
	sel, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return 0, 0, err
	}
	for i := range pods {
		p := &pods[i]
		if !unfinished(p) || p.Namespace != namespace || !sel.Matches(labels.Set(p.Labels)) {
			continue
		}
		all++
		if registry.PodReady(p) {
			ready++
		}
	}
	return all, ready, nil
}

func unfinished(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// state is what the status of a workload says, whatever its kind.
type state struct {
	kind               string
	meta               metav1.ObjectMeta
	selector           *metav1.LabelSelector
	observed           int64
	want, has, isReady int32
}

// check compares a status with its spec and the pods. A workload that has too few pods
// may be held back by one of them that is not ready (a StatefulSet's).
func (s state) check(pods []corev1.Pod) error {
	all, ready, err := tally(pods, s.meta.Namespace, s.selector)
	switch {
	case err != nil:
		return err
	case s.observed < s.meta.Generation:
		err = errors.New("its controller has not seen it yet")
	case s.has != all || s.isReady != ready:
		err = fmt.Errorf("its status has %d pods, %d ready; there are %d, %d ready", s.has, s.isReady, all, ready)
	case all != s.want && ready == all:
		err = fmt.Errorf("it has %d pods and wants %d", all, s.want)
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", s.kind, s.meta.Namespace, s.meta.Name, err)
	}
	return nil
}

func (c *Cluster) deployments(ctx context.Context, pods []corev1.Pod) error {
	list, err := c.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		if d.Spec.Paused {
			continue // one that is made paused never gets a pod
		}
		s := state{"Deployment", d.ObjectMeta, d.Spec.Selector, d.Status.ObservedGeneration, ptr.Deref(d.Spec.Replicas, 1), d.Status.Replicas, d.Status.ReadyReplicas}
		if err := s.check(pods); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) statefulSets(ctx context.Context, pods []corev1.Pod) error {
	list, err := c.client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		s := state{"StatefulSet", d.ObjectMeta, d.Spec.Selector, d.Status.ObservedGeneration, ptr.Deref(d.Spec.Replicas, 1), d.Status.Replicas, d.Status.ReadyReplicas}
		if err := s.check(pods); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) replicaSets(ctx context.Context, pods []corev1.Pod) error {
	list, err := c.client.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		if metav1.GetControllerOf(&d) != nil {
			continue
		}
		s := state{"ReplicaSet", d.ObjectMeta, d.Spec.Selector, d.Status.ObservedGeneration, ptr.Deref(d.Spec.Replicas, 1), d.Status.Replicas, d.Status.ReadyReplicas}
		if err := s.check(pods); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) controllers(ctx context.Context, pods []corev1.Pod) error {
	list, err := c.client.CoreV1().ReplicationControllers("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		selector := &metav1.LabelSelector{MatchLabels: d.Spec.Selector}
		s := state{"ReplicationController", d.ObjectMeta, selector, d.Status.ObservedGeneration, ptr.Deref(d.Spec.Replicas, 1), d.Status.Replicas, d.Status.ReadyReplicas}
		if err := s.check(pods); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) daemonSets(ctx context.Context, _ []corev1.Pod) error {
	list, err := c.client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		if s := d.Status; s.ObservedGeneration < d.Generation || s.NumberReady != s.DesiredNumberScheduled {
			return fmt.Errorf("DaemonSet %s/%s has %d of %d pods ready", d.Namespace, d.Name, s.NumberReady, s.DesiredNumberScheduled)
		}
	}
	return nil
}

// customResources are right when what is written of them is what is there.
func (c *Cluster) customResources(_ context.Context, pods []corev1.Pod) error {
	c.mu.Lock()
	all := c.customs
	c.mu.Unlock()
	for _, s := range all {
		for _, o := range s.objects() {
			if err := customState(o).check(pods); err != nil {
				return err
			}
		}
	}
	return nil
}

func customState(o runtime.Object) state {
	switch o := o.(type) {
	case *kube.Rollout:
		seen, _ := strconv.ParseInt(o.Status.ObservedGeneration, 10, 64) // nothing yet is 0
		return state{"Rollout", o.ObjectMeta, o.Spec.Selector, seen, ptr.Deref(o.Spec.Replicas, 1), o.Status.Replicas, o.Status.ReadyReplicas}
	case *kube.CloneSet:
		return state{"CloneSet", o.ObjectMeta, o.Spec.Selector, o.Status.ObservedGeneration, ptr.Deref(o.Spec.Replicas, 1), o.Status.Replicas, o.Status.ReadyReplicas}
	}
	return state{}
}

func (c *Cluster) jobs(ctx context.Context, pods []corev1.Pod) error {
	list, err := c.client.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, j := range list.Items {
		if ended(&j) || ptr.Deref(j.Spec.Suspend, false) {
			continue
		}
		active, _, err := tally(pods, j.Namespace, j.Spec.Selector)
		if err != nil {
			return err
		}
		if active == 0 || active != j.Status.Active {
			return fmt.Errorf("%s/%s, a Job, has %d pods at work and says %d", j.Namespace, j.Name, active, j.Status.Active)
		}
	}
	return nil
}

func ended(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func (c *Cluster) budgets(ctx context.Context, pods []corev1.Pod) error {
	list, err := c.client.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if shared(list.Items, i, pods) {
			continue
		}
		if err := budget(&list.Items[i], pods); err != nil {
			return err
		}
	}
	return nil
}

// shared is true for a budget over a pod that another one selects too: a change of such a
// pod makes the controller look at one of them only (getPdbForPod in
// kubernetes/pkg/controller/disruption), so the other may say nothing of it for long.
func shared(all []policyv1.PodDisruptionBudget, nth int, pods []corev1.Pod) bool {
	selects := func(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		return err == nil && b.Namespace == p.Namespace && s.Matches(labels.Set(p.Labels))
	}
	for i := range pods {
		for other := range all {
			if other != nth && selects(&all[nth], &pods[i]) && selects(&all[other], &pods[i]) {
				return true
			}
		}
	}
	return false
}

func budget(b *policyv1.PodDisruptionBudget, pods []corev1.Pod) error {
	_, ready, err := tally(pods, b.Namespace, b.Spec.Selector)
	if err != nil {
		return err
	}
	if b.Status.ObservedGeneration < b.Generation || b.Status.CurrentHealthy != ready {
		return fmt.Errorf("PodDisruptionBudget %s/%s says %d healthy pods, %d are", b.Namespace, b.Name, b.Status.CurrentHealthy, ready)
	}
	return nil
}
