package registry

import (
	"fmt"
	"strings"
	"sync"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// Writer says who writes and how, for metadata.managedFields. The zero Writer leaves them
// alone: what the controllers and the kubelets of the sandbox write is not told apart.
type Writer struct {
	// Manager is the field manager: the query parameter, or the user agent up to its slash.
	Manager string
}

// WriterOf makes the Writer of a request, as managerOrUserAgent of kube-apiserver does.
func WriterOf(fieldManager, userAgent string) Writer {
	if fieldManager != "" {
		return Writer{fieldManager}
	}
	name, _, _ := strings.Cut(userAgent, "/")
	name = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, name)
	return Writer{name[:min(len(name), 128)]}
}

// fieldManagers are made when they are first needed, one for each resource and part.
var fieldManagers = struct {
	sync.Mutex
	byPart map[string]*managedfields.FieldManager
}{byPart: map[string]*managedfields.FieldManager{}}

var typeConverter = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(Scheme) })

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

func (r *Resource) fields(sub Sub) (*managedfields.FieldManager, error) {
	fieldManagers.Lock()
	defer fieldManagers.Unlock()
	key := r.GR().String() + "/" + string(sub)
	if m := fieldManagers.byPart[key]; m != nil {
		return m, nil
	}
	reset := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	if sub == Status {
		reset = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels"))
	}
	filters := map[fieldpath.APIVersion]fieldpath.Filter{
		fieldpath.APIVersion(r.GroupVersion().String()): fieldpath.NewExcludeSetFilter(reset),
	}
	var m *managedfields.FieldManager
	var err error
	if r.Custom {
		m, err = managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), Scheme, noDefaults{}, Scheme, r.GVK(), r.GroupVersion(), string(sub), filters)
	} else {
		m, err = managedfields.NewDefaultFieldManager(typeConverter(), Scheme, noDefaults{}, Scheme, r.GVK(), r.GroupVersion(), string(sub), filters)
	}
	if err != nil {
		return nil, fmt.Errorf("field manager of %s: %w", key, err)
	}
	fieldManagers.byPart[key] = m
	return m, nil
}

// track brings the managedFields of next up to date with what w changes from old; old is
// nil for a new object.
func (r *Resource) track(w Writer, sub Sub, old, next store.Object) (store.Object, error) {
	if w == (Writer{}) {
		if old != nil {
			next.SetManagedFields(old.GetManagedFields())
		}
		return next, nil
	}
	m, err := r.fields(sub)
	if err != nil {
		return nil, err
	}
	if old == nil {
		old = r.New()
	}
	o := m.UpdateNoErrors(old, next, w.Manager)
	o.GetObjectKind().SetGroupVersionKind(r.GVK())
	return o.(store.Object), nil
}

// Apply is server-side apply: f parses what is applied, over the object that is there or
// to a new one. With force conflicts are settled for w. It tells whether the object is new.
func (r *Registry) Apply(w Writer, res *Resource, namespace, name string, sub Sub, force, dryRun bool, applied *unstructured.Unstructured) (store.Object, bool, error) {
	m, err := res.fields(sub)
	if err != nil {
		return nil, false, err
	}
	merge := func(live store.Object) (store.Object, error) {
		o, err := m.Apply(live, applied, w.Manager, force)
		if err != nil {
			return nil, err
		}
		if u, ok := o.(*unstructured.Unstructured); ok {
			typed := res.New()
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			o = typed
		}
		return o.(store.Object), nil
	}
	o, err := r.change(Writer{}, res, namespace, name, sub, dryRun, merge, true)
	if !apierrors.IsNotFound(err) || sub != Whole {
		return o, false, err
	}
	empty := res.New()
	empty.SetNamespace(namespace)
	made, err := merge(empty)
	if err != nil {
		return nil, false, err
	}
	made.SetName(name)
	o, err = r.create(Writer{}, res, made, dryRun, true)
	return o, true, err
}

// sameButTimes is true for objects that differ in nothing but when their fields were
// last written, which is no change.
func sameButTimes(old, next store.Object) bool {
	was, is := old.GetManagedFields(), next.GetManagedFields()
	if len(was) != len(is) {
		return false
	}
	timeless := make([]metav1.ManagedFieldsEntry, len(is))
	for i := range is {
		timeless[i] = is[i]
		timeless[i].Time = was[i].Time
	}
	next.SetManagedFields(timeless)
	defer next.SetManagedFields(is)
	return equality.Semantic.DeepEqual(old, next)
}
