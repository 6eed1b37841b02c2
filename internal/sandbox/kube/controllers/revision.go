package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sort"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// revisionData is a StatefulSet's template as a ControllerRevision keeps it: a patch that
// would put it back.
type revisionData struct {
	Spec struct {
		Template struct {
			corev1.PodTemplateSpec `json:",inline"`
			Patch                  string `json:"$patch"`
		} `json:"template"`
	} `json:"spec"`
}

func dataOf(t corev1.PodTemplateSpec) ([]byte, error) {
	var d revisionData
	d.Spec.Template.PodTemplateSpec = t
	d.Spec.Template.Patch = "replace"
	return json.Marshal(d)
}

// templateOf reads a template back out of a revision.
func templateOf(set *appsv1.StatefulSet, rev *appsv1.ControllerRevision) (corev1.PodTemplateSpec, error) {
	var d revisionData
	if err := json.Unmarshal(rev.Data.Raw, &d); err != nil {
		return corev1.PodTemplateSpec{}, fmt.Errorf("reading revision %s of StatefulSet %s/%s: %w", rev.Name, set.Namespace, set.Name, err)
	}
	return d.Spec.Template.PodTemplateSpec, nil
}

// revisions finds the revision of the present template, making it when there is none or
// raising an older equal one, and the revision that the set was last rolled to.
func (s *setSync) revisions() error {
	all := controlled[*appsv1.ControllerRevision](s.m, s.set.UID, registry.ControllerRevisions)
	sort.SliceStable(all, func(i, j int) bool { return all[i].Revision < all[j].Revision })
	data, err := dataOf(s.set.Spec.Template)
	if err != nil {
		return fmt.Errorf("template of StatefulSet %s/%s: %w", s.set.Namespace, s.set.Name, err)
	}
	next := int64(1)
	for _, r := range all {
		next = max(next, r.Revision+1)
		if bytes.Equal(r.Data.Raw, data) {
			s.update = r
		}
	}
	switch {
	case s.update == nil:
		if s.update, err = s.newRevision(data, next); err != nil {
			return err
		}
	case s.update != all[len(all)-1]:
		r := s.update.DeepCopy()
		r.Revision = next
		if s.update, err = update(s.m, registry.ControllerRevisions, registry.Whole, r); err != nil {
			return err
		}
	}
	s.current = s.update
	for _, r := range all {
		if r.Name == s.set.Status.CurrentRevision {
			s.current = r
		}
	}
	return s.dropRevisions(all)
}

func (s *setSync) newRevision(data []byte, n int64) (*appsv1.ControllerRevision, error) {
	for collision := 0; ; collision++ {
		h := fnv.New32()
		h.Write(data) //nolint:errcheck // never fails
		if collision > 0 {
			h.Write([]byte(strconv.Itoa(collision))) //nolint:errcheck // never fails
		}
		hash := rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
		r := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.set.Namespace, Name: s.set.Name + "-" + hash, Labels: with(s.set.Spec.Template.Labels, "controller.kubernetes.io/hash", hash),
				Annotations:     s.set.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set, statefulSetKind)},
			},
			Data: runtime.RawExtension{Raw: data}, Revision: n,
		}
		o, err := s.m.reg.Create(registry.ControllerRevisions, r, false)
		if apierrors.IsAlreadyExists(err) && collision < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		return o.(*appsv1.ControllerRevision), nil
	}
}

// dropRevisions deletes the oldest revisions that no pod has, beyond revisionHistoryLimit.
func (s *setSync) dropRevisions(all []*appsv1.ControllerRevision) error {
	live := map[string]bool{s.current.Name: true, s.update.Name: true}
	for _, p := range s.pods {
		live[p.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	var idle []*appsv1.ControllerRevision
	for _, r := range all {
		if !live[r.Name] {
			idle = append(idle, r)
		}
	}
	keep := 10
	if l := s.set.Spec.RevisionHistoryLimit; l != nil {
		keep = int(*l)
	}
	for i := 0; i < len(idle)-keep; i++ {
		_, _, err := s.m.reg.Delete(registry.ControllerRevisions, idle[i].Namespace, idle[i].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
