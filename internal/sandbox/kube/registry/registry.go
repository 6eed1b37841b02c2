package registry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// errDryRun ends a transaction that must not take effect.
var errDryRun = errors.New("dry run")

// Registry is the API without its wire.
type Registry struct {
	*store.Store
	now   func() time.Time
	admit []func(*Resource, store.Object) error

	mu   sync.Mutex
	rand *rand.Rand
}

// New makes a registry over s. now is the clock of all timestamps, seed that of uids and
// generated names.
func New(s *store.Store, now func() time.Time, seed int64) *Registry {
	return &Registry{Store: s, now: now, rand: rand.New(rand.NewPCG(uint64(seed), 0x65_6b_73_62_67))}
}

// Admit registers f to change or refuse objects that are about to be created. It runs
// while the store is locked.
func (r *Registry) Admit(f func(*Resource, store.Object) error) { r.admit = append(r.admit, f) }

// Now is the present time as the API spells it: whole seconds.
func (r *Registry) Now() metav1.Time { return metav1.NewTime(r.now().Truncate(time.Second)) }

// Clock is the present time in full.
func (r *Registry) Clock() time.Time { return r.now() }

// Draw hands the registry's seeded source of randomness to f.
func (r *Registry) Draw(f func(*rand.Rand)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.rand)
}

// Suffix makes n random characters of the alphabet that generated names use: no vowels,
// so that no words come out (apimachinery/pkg/util/rand).
func (r *Registry) Suffix(n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	r.Draw(func(src *rand.Rand) {
		for i := range b {
			b[i] = alphabet[src.IntN(len(alphabet))]
		}
	})
	return string(b)
}

func (r *Registry) uid() types.UID {
	var b [16]byte
	r.Draw(func(src *rand.Rand) {
		for i := range b {
			b[i] = byte(src.Uint32())
		}
	})
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]))
}

// Get returns the object, or a NotFound status.
func (r *Registry) Get(res *Resource, namespace, name string) (store.Object, error) {
	if o := r.Store.Get(res.GR(), store.Key(namespace, name)); o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(res.GR(), name)
}

// Create stores a new object. The object given is not kept. Failures are API statuses.
func (r *Registry) Create(res *Resource, in store.Object, dryRun bool) (store.Object, error) {
	return r.create(Writer{}, res, in, dryRun, false)
}

// CreateAs is Create by somebody whose fields are tracked.
func (r *Registry) CreateAs(w Writer, res *Resource, in store.Object, dryRun bool) (store.Object, error) {
	return r.create(w, res, in, dryRun, false)
}

// create with applied keeps the managedFields that the object came with.
func (r *Registry) create(w Writer, res *Resource, in store.Object, dryRun, applied bool) (store.Object, error) {
	o := in.DeepCopyObject().(store.Object)
	if res.Namespaced && o.GetNamespace() == "" {
		return nil, apierrors.NewBadRequest("an object of " + res.Resource + " needs a namespace")
	}
	if !res.Namespaced {
		o.SetNamespace("")
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	r.prepare(res, o)
	if applied {
		o.SetManagedFields(in.GetManagedFields())
	} else if w != (Writer{}) {
		tracked, err := res.track(w, Whole, nil, o)
		if err != nil {
			return nil, err
		}
		o = tracked
	}
	err := r.Update(func(tx *store.Tx) error {
		if err := checkNamespace(tx, res, o); err != nil {
			return err
		}
		if err := prioritize(tx.Reader, o); err != nil {
			return err
		}
		for _, f := range r.admit {
			if err := f(res, o); err != nil {
				return err
			}
		}
		if errs := validateCreate(res, o); len(errs) > 0 {
			return apierrors.NewInvalid(res.GVK().GroupKind(), o.GetName(), errs)
		}
		if tx.Get(res.GR(), store.KeyOf(o)) != nil {
			return apierrors.NewAlreadyExists(res.GR(), o.GetName())
		}
		if dryRun {
			return errDryRun
		}
		tx.Put(res.GR(), o)
		return nil
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return nil, err
	}
	return o, nil
}

// prepare fills in what the server gives to every new object.
func (r *Registry) prepare(res *Resource, o store.Object) {
	o.GetObjectKind().SetGroupVersionKind(res.GVK())
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + r.Suffix(5))
	}
	o.SetUID(r.uid())
	o.SetCreationTimestamp(r.Now())
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetManagedFields(nil)
	o.SetGeneration(0)
	if res.Generation {
		o.SetGeneration(1)
	}
	if res.Status && res != Nodes {
		resetStatus(o)
	}
	if res.defaults != nil {
		res.defaults(o)
	}
}

// checkNamespace refuses objects whose namespace is missing or going away.
func checkNamespace(tx *store.Tx, res *Resource, o store.Object) error {
	if !res.Namespaced {
		return nil
	}
	ns, _ := tx.Get(Namespaces.GR(), o.GetNamespace()).(*corev1.Namespace)
	if ns == nil {
		return apierrors.NewNotFound(Namespaces.GR(), o.GetNamespace())
	}
	if ns.DeletionTimestamp != nil && res != Events {
		err := apierrors.NewForbidden(res.GR(), o.GetName(), fmt.Errorf(
			"unable to create new content in namespace %s because it is being terminated", ns.Name))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: "namespace " + ns.Name + " is being terminated", Field: "metadata.namespace",
		})
		return err
	}
	return nil
}

// Sub is the part of an object that an update may change.
type Sub string

// The parts.
const (
	Whole  Sub = ""
	Status Sub = "status"
)

// Change updates an object: f gets the present state (not to be changed) and returns the
// wanted one. A resourceVersion or uid in it that does not fit is a Conflict. Nothing is
// written when nothing would change. An object whose last finalizer goes while it is
// being deleted is gone afterwards.
func (r *Registry) Change(res *Resource, namespace, name string, sub Sub, dryRun bool, f func(old store.Object) (store.Object, error)) (store.Object, error) {
	return r.change(Writer{}, res, namespace, name, sub, dryRun, f, false)
}

// ChangeAs is Change by somebody whose fields are tracked.
func (r *Registry) ChangeAs(w Writer, res *Resource, namespace, name string, sub Sub, dryRun bool, f func(old store.Object) (store.Object, error)) (store.Object, error) {
	return r.change(w, res, namespace, name, sub, dryRun, f, false)
}

// change with applied keeps the managedFields that f returns.
func (r *Registry) change(w Writer, res *Resource, namespace, name string, sub Sub, dryRun bool, f func(old store.Object) (store.Object, error), applied bool) (store.Object, error) {
	var out store.Object
	err := r.Update(func(tx *store.Tx) error {
		old := tx.Get(res.GR(), store.Key(namespace, name))
		if old == nil {
			return apierrors.NewNotFound(res.GR(), name)
		}
		want, err := f(old)
		if err != nil {
			return err
		}
		next, err := r.merge(res, sub, old, want)
		if err != nil {
			return err
		}
		if applied {
			next.SetManagedFields(want.GetManagedFields())
		} else if next, err = res.track(w, sub, old, next); err != nil {
			return err
		}
		if out = next; sameButTimes(old, next) {
			out = old
			return nil
		}
		if dryRun {
			return errDryRun
		}
		if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 && len(old.GetFinalizers()) > 0 && expired(next) {
			tx.Put(res.GR(), next)
			tx.Delete(res.GR(), store.KeyOf(next))
			return nil
		}
		tx.Put(res.GR(), next)
		return nil
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return nil, err
	}
	return out, nil
}

// expired is true for objects that wait for nothing but their finalizers.
func expired(o store.Object) bool {
	if ns, ok := o.(*corev1.Namespace); ok {
		return len(ns.Spec.Finalizers) == 0
	}
	g := o.GetDeletionGracePeriodSeconds()
	return g == nil || *g == 0
}

// merge lays the part of want that sub allows over old.
func (r *Registry) merge(res *Resource, sub Sub, old, want store.Object) (store.Object, error) {
	if err := fits(res, old, want); err != nil {
		return nil, err
	}
	next := want.DeepCopyObject().(store.Object)
	if sub == Status {
		given := next
		next = old.DeepCopyObject().(store.Object)
		next.SetAnnotations(given.GetAnnotations())
		copyField(next, given, "Status")
		next.GetObjectKind().SetGroupVersionKind(res.GVK())
		return next, nil
	}
	next.GetObjectKind().SetGroupVersionKind(res.GVK())
	next.SetNamespace(old.GetNamespace())
	next.SetUID(old.GetUID())
	next.SetResourceVersion(old.GetResourceVersion())
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetDeletionTimestamp(old.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	next.SetGenerateName(old.GetGenerateName())
	next.SetGeneration(old.GetGeneration())
	if res.Status {
		copyField(next, old, "Status")
	}
	if res.defaults != nil {
		res.defaults(next)
	}
	if errs := validateUpdate(res, next, old); len(errs) > 0 {
		return nil, apierrors.NewInvalid(res.GVK().GroupKind(), next.GetName(), errs)
	}
	// Those of Deployments count their annotations, too (deploymentStrategy.PrepareForUpdate).
	if res.Generation && (!equality.Semantic.DeepEqual(part(next, res.spec), part(old, res.spec)) ||
		res == Deployments && !equality.Semantic.DeepEqual(next.GetAnnotations(), old.GetAnnotations())) {
		next.SetGeneration(old.GetGeneration() + 1)
	}
	return next, nil
}

// fits compares what want says of itself with what is stored.
func fits(res *Resource, old, want store.Object) error {
	if want.GetName() != old.GetName() {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", want.GetName(), old.GetName()))
	}
	if uid := want.GetUID(); uid != "" && uid != old.GetUID() {
		return unmet(res, old, "UID", uid, old.GetUID())
	}
	if rv := want.GetResourceVersion(); res.pinned && (rv == "" || rv == "0") {
		return apierrors.NewInvalid(res.GVK().GroupKind(), old.GetName(), fieldErrors{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	} else if rv != "" && rv != "0" && rv != old.GetResourceVersion() {
		return apierrors.NewConflict(res.GR(), old.GetName(), errors.New(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// part returns the part of an object by the name of its Go field.
func part(o store.Object, name string) any {
	return reflect.ValueOf(o).Elem().FieldByName(name).Interface()
}

func copyField(to, from store.Object, name string) {
	reflect.ValueOf(to).Elem().FieldByName(name).Set(reflect.ValueOf(from).Elem().FieldByName(name))
}

func resetStatus(o store.Object) {
	f := reflect.ValueOf(o).Elem().FieldByName("Status")
	f.SetZero()
}

// Bind puts a pod on a node: next is old with its node name and status changed. It is a
// Conflict when old is no longer what is stored.
func (r *Registry) Bind(old, next *corev1.Pod) error {
	return r.Update(func(tx *store.Tx) error {
		now := tx.Get(Pods.GR(), store.KeyOf(old))
		if now == nil {
			return apierrors.NewNotFound(Pods.GR(), old.Name)
		}
		if err := fits(Pods, now, old); err != nil {
			return err
		}
		tx.Put(Pods.GR(), next)
		return nil
	})
}
