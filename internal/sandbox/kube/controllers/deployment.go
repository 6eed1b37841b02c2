package controllers

import (
	"hash/fnv"
	"maps"
	"sort"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// Annotations of Deployments and their ReplicaSets (pkg/controller/deployment/util).
const (
	annRevision        = "deployment.kubernetes.io/revision"
	annRevisionHistory = "deployment.kubernetes.io/revision-history"
	annDesired         = "deployment.kubernetes.io/desired-replicas"
	annMax             = "deployment.kubernetes.io/max-replicas"
)

// rollout is one look at a Deployment: its ReplicaSets, split into the one of the present
// template and all others.
type rollout struct {
	m    *Manager
	c    *controller[string]
	d    *appsv1.Deployment
	new  *appsv1.ReplicaSet // nil when there is none yet
	olds []*appsv1.ReplicaSet
}

func (r *rollout) all() []*appsv1.ReplicaSet {
	if r.new == nil {
		return r.olds
	}
	return append(append([]*appsv1.ReplicaSet(nil), r.olds...), r.new)
}

// syncDeployment takes a rollout one step further. Each step changes something that
// brings the Deployment back here, until there is nothing left to change.
func (m *Manager) syncDeployment(c *controller[string], key string) error {
	d, ok := get[*appsv1.Deployment](m, registry.Deployments, key)
	if !ok {
		return nil
	}
	r := &rollout{m: m, c: c, d: d}
	sel, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil // refused on creation
	}
	claimed, err := m.claim(d, deploymentKind, registry.ReplicaSets, sel)
	if err != nil {
		return err
	}
	sets := make([]*appsv1.ReplicaSet, len(claimed))
	for i, o := range claimed {
		sets[i] = o.(*appsv1.ReplicaSet)
	}
	if d.DeletionTimestamp != nil {
		r.split(sets)
		return r.writeStatus(r.status())
	}
	if changed, err := r.notePause(); changed || err != nil {
		return err
	}
	r.split(sets)
	if d.Spec.Paused || r.scaled() {
		if stop, err := r.syncRevision(false); stop || err != nil {
			return err
		}
		if changed, err := r.scale(); changed || err != nil {
			return err
		}
	}
	if d.Spec.Paused {
		if err := r.cleanUp(); err != nil {
			return err
		}
		return r.writeStatus(r.status())
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return r.recreate()
	}
	return r.roll()
}

// roll is a rolling update: the new set up as far as maxSurge lets it, the old ones down
// as far as maxUnavailable does.
func (r *rollout) roll() error {
	if stop, err := r.syncRevision(true); stop || err != nil {
		return err
	}
	if changed, err := r.scaleUpNew(); changed || err != nil {
		return r.after(err)
	}
	if changed, err := r.scaleDownOld(); changed || err != nil {
		return r.after(err)
	}
	if r.complete(r.d.Status) {
		if err := r.cleanUp(); err != nil {
			return err
		}
	}
	return r.progress()
}

// after ends a step that scaled something: the ReplicaSets have changed, so the status
// is for the next look.
func (r *rollout) after(err error) error {
	if err == nil {
		r.c.Add(store.KeyOf(r.d))
	}
	return err
}

// recreate ends all old pods before the first new one is made.
func (r *rollout) recreate() error {
	if stop, err := r.syncRevision(false); stop || err != nil {
		return err
	}
	for _, rs := range r.olds {
		if *rs.Spec.Replicas > 0 {
			if err := r.setReplicas(rs, 0); err != nil {
				return err
			}
			return r.after(nil)
		}
	}
	for _, rs := range r.olds {
		for _, p := range controlled[*corev1.Pod](r.m, rs.UID, registry.Pods) {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				return r.progress() // still running or Terminating
			}
		}
	}
	if stop, err := r.syncRevision(true); stop || err != nil {
		return err
	}
	if *r.new.Spec.Replicas != *r.d.Spec.Replicas {
		return r.after(r.setReplicas(r.new, *r.d.Spec.Replicas))
	}
	if r.complete(r.d.Status) {
		if err := r.cleanUp(); err != nil {
			return err
		}
	}
	return r.progress()
}

// split finds the ReplicaSet of the present template; of several the oldest.
func (r *rollout) split(sets []*appsv1.ReplicaSet) {
	byAge(sets)
	r.new, r.olds = nil, nil
	for _, rs := range sets {
		if r.new == nil && sameTemplate(rs.Spec.Template, r.d.Spec.Template) {
			r.new = rs
		} else {
			r.olds = append(r.olds, rs)
		}
	}
}

func byAge(sets []*appsv1.ReplicaSet) {
	sort.SliceStable(sets, func(i, j int) bool {
		a, b := sets[i], sets[j]
		if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
			return a.CreationTimestamp.Before(&b.CreationTimestamp)
		}
		if x, y := revisionOf(a), revisionOf(b); x != y {
			return x < y
		}
		return a.Name < b.Name
	})
}

// sameTemplate compares templates without the label that tells ReplicaSets apart.
func sameTemplate(a, b corev1.PodTemplateSpec) bool {
	strip := func(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
		t.Labels = maps.Clone(t.Labels)
		delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		return t
	}
	return equality.Semantic.DeepEqual(strip(a), strip(b))
}

func revisionOf(o metav1.Object) int64 {
	n, _ := strconv.ParseInt(o.GetAnnotations()[annRevision], 10, 64) // 0 when it is not set
	return n
}

// templateHash is the value of the label pod-template-hash.
func templateHash(t *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	h.Write([]byte(dump.ForHash(*t))) //nolint:errcheck // never fails
	if collisions != nil {
		h.Write([]byte{byte(*collisions), byte(*collisions >> 8), byte(*collisions >> 16), byte(*collisions >> 24), 0, 0, 0, 0}) //nolint:errcheck // never fails
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// syncRevision brings the new ReplicaSet's annotations and the Deployment's revision up
// to date, and makes the ReplicaSet if it is wanted. stop is true when something was
// written that another look has to start from.
func (r *rollout) syncRevision(create bool) (stop bool, err error) {
	revision := int64(1)
	for _, rs := range r.olds {
		revision = max(revision, revisionOf(rs)+1)
	}
	if r.new == nil {
		if !create {
			return false, nil
		}
		return true, r.createReplicaSet(revision)
	}
	next := r.new.DeepCopy()
	r.annotate(next, revision)
	next.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
	if !equality.Semantic.DeepEqual(next, r.new) {
		_, err := update(r.m, registry.ReplicaSets, registry.Whole, next)
		return true, err
	}
	if r.d.Annotations[annRevision] == r.new.Annotations[annRevision] {
		return false, nil
	}
	d := r.d.DeepCopy()
	d.Annotations = with(d.Annotations, annRevision, r.new.Annotations[annRevision])
	if d.Spec.ProgressDeadlineSeconds != nil && condition(d.Status, appsv1.DeploymentProgressing) == nil {
		setDeploymentCondition(&d.Status, r.m.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue,
			"FoundNewReplicaSet", `Found new replica set "`+r.new.Name+`"`))
	}
	_, err = update(r.m, registry.Deployments, registry.Status, d)
	return true, err
}

func with(m map[string]string, k, v string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// annotate gives a ReplicaSet what it has from its Deployment.
func (r *rollout) annotate(rs *appsv1.ReplicaSet, revision int64) {
	for k, v := range r.d.Annotations {
		switch k {
		case corev1.LastAppliedConfigAnnotation, annRevision, annRevisionHistory, annDesired, annMax:
		default:
			rs.Annotations = with(rs.Annotations, k, v)
		}
	}
	if old := revisionOf(rs); old < revision {
		if old > 0 {
			var history []string
			if h := rs.Annotations[annRevisionHistory]; h != "" {
				history = strings.Split(h, ",")
			}
			rs.Annotations = with(rs.Annotations, annRevisionHistory, strings.Join(append(history, strconv.FormatInt(old, 10)), ","))
		}
		rs.Annotations = with(rs.Annotations, annRevision, strconv.FormatInt(revision, 10))
	}
}

// size notes the Deployment's size on a ReplicaSet, which is how a change of it is seen.
func (r *rollout) size(rs *appsv1.ReplicaSet) {
	rs.Annotations = with(rs.Annotations, annDesired, strconv.Itoa(int(*r.d.Spec.Replicas)))
	rs.Annotations = with(rs.Annotations, annMax, strconv.Itoa(int(*r.d.Spec.Replicas+maxSurge(r.d))))
}

func (r *rollout) createReplicaSet(revision int64) error {
	d := r.d
	hash := templateHash(&d.Spec.Template, d.Status.CollisionCount)
	t := d.Spec.Template.DeepCopy()
	t.Labels = with(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	sel := d.Spec.Selector.DeepCopy()
	sel.MatchLabels = with(sel.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: t.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, deploymentKind)},
		},
		Spec: appsv1.ReplicaSetSpec{MinReadySeconds: d.Spec.MinReadySeconds, Selector: sel, Template: *t},
	}
	n := newReplicas(d, r.olds, 0)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		n = *d.Spec.Replicas
	}
	rs.Spec.Replicas = &n
	r.annotate(rs, revision)
	r.size(rs)
	_, err := r.m.reg.Create(registry.ReplicaSets, rs, false)
	if apierrors.IsAlreadyExists(err) {
		next := d.DeepCopy()
		collisions := int32(1)
		if c := d.Status.CollisionCount; c != nil {
			collisions = *c + 1
		}
		next.Status.CollisionCount = &collisions
		_, err = update(r.m, registry.Deployments, registry.Status, next)
		return err
	}
	if err != nil {
		return err
	}
	if n > 0 {
		r.c.events.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", rs.Name, n)
	}
	if d.Spec.ProgressDeadlineSeconds != nil {
		next := d.DeepCopy()
		setDeploymentCondition(&next.Status, r.m.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue,
			"NewReplicaSetCreated", `Created new replica set "`+rs.Name+`"`))
		_, err = update(r.m, registry.Deployments, registry.Status, next)
	}
	return err
}

// cleanUp drops the oldest ReplicaSets beyond revisionHistoryLimit.
func (r *rollout) cleanUp() error {
	if r.d.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	var idle []*appsv1.ReplicaSet
	for _, rs := range r.olds {
		if rs.DeletionTimestamp == nil && *rs.Spec.Replicas == 0 && rs.Status.Replicas == 0 && rs.Generation <= rs.Status.ObservedGeneration {
			idle = append(idle, rs)
		}
	}
	sort.SliceStable(idle, func(i, j int) bool { return revisionOf(idle[i]) < revisionOf(idle[j]) })
	for i := 0; i < len(idle)-int(*r.d.Spec.RevisionHistoryLimit); i++ {
		_, _, err := r.m.reg.Delete(registry.ReplicaSets, idle[i].Namespace, idle[i].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
