// Package table makes the tables that kubectl get prints: the server says which columns
// there are (meta.k8s.io Table, "Receiving resources as Tables" in the API concepts).
// The columns are those of kubernetes' pkg/printers/internalversion.
package table

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// layout is how the objects of a resource become rows.
type layout struct {
	columns []metav1.TableColumnDefinition
	cells   func(o store.Object, now time.Time) []any
}

// cols makes column definitions of names; each "|" switches between those
// that always show and those of -o wide.
func cols(names ...string) []metav1.TableColumnDefinition {
	var out []metav1.TableColumnDefinition
	var priority int32
	for _, n := range names {
		if n == "|" {
			priority = 1 - priority
			continue
		}
		c := metav1.TableColumnDefinition{Name: n, Type: "string", Priority: priority, Description: n}
		if n == "Name" {
			c.Format = "name"
		}
		out = append(out, c)
	}
	return out
}

// Of makes the table of some objects of a resource. include says what each row carries
// of its object, as the query parameter includeObject does.
func Of(res *registry.Resource, objects []store.Object, now time.Time, include metav1.IncludeObjectPolicy) *metav1.Table {
	l, ok := layouts[res]
	if !ok {
		l = layout{cols("Name", "Created At"), func(o store.Object, _ time.Time) []any {
			return []any{o.GetName(), o.GetCreationTimestamp().UTC().Format(time.RFC3339)}
		}}
	}
	t := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"},
		ColumnDefinitions: l.columns,
		Rows:              make([]metav1.TableRow, len(objects)),
	}
	for i, o := range objects {
		t.Rows[i] = metav1.TableRow{Cells: l.cells(o, now), Object: runtime.RawExtension{Object: carried(o, include)}}
	}
	return t
}

func carried(o store.Object, include metav1.IncludeObjectPolicy) runtime.Object {
	switch include {
	case metav1.IncludeNone:
		return nil
	case metav1.IncludeObject:
		return o
	}
	return Partial(o)
}

// Partial is the metadata of an object alone.
func Partial(o store.Object) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
	if m, ok := o.(metav1.ObjectMetaAccessor); ok {
		if om, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			p.ObjectMeta = *om
		}
	}
	return p
}

// age is how long ago t was, as kubectl writes it.
func age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// or returns s, or alt when s is empty.
func or(s, alt string) string {
	if s == "" {
		return alt
	}
	return s
}
