package route53

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// key is the identity of a record set within its zone.
type key struct{ name, typ, id string }

func (r RecordSet) key() key { return key{r.Name, r.Type, r.SetIdentifier} }

func (k key) String() string {
	s := fmt.Sprintf("[name='%s', type='%s'", k.name, k.typ)
	if k.id != "" {
		s += fmt.Sprintf(", set-identifier='%s'", k.id)
	}
	return s + "]"
}

// canonical is a name as Route 53 stores it: lower case, with its last dot, every
// character but letters, digits, - _ . as \ooo
// (https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/DomainNameFormat.html).
func canonical(name string) string {
	name = strings.TrimSpace(name)
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '\\' && i+3 < len(name) {
			var o byte
			if _, err := fmt.Sscanf(name[i+1:i+4], "%03o", &o); err == nil {
				c, i = o, i+3
			}
		}
		switch {
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "\\%03o", c)
		}
	}
	out := b.String()
	if !strings.HasSuffix(out, ".") {
		out += "."
	}
	return out
}

const star = `\052`

// wildcard is the wildcard that answers for a name that is not there: that of its
// own level, then those above.
func wildcard(name string) string {
	rest := name
	if after, ok := strings.CutPrefix(name, star+"."); ok {
		rest = after
	}
	_, parent, _ := strings.Cut(rest, ".")
	return star + "." + parent
}

func inZone(name, zone string) bool {
	return name == zone || strings.HasSuffix(name, "."+zone)
}

// reversed is a name with its labels turned round, by which Route 53 sorts.
func reversed(name string) string {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

func (k key) compare(other key) int {
	if c := strings.Compare(reversed(k.name), reversed(other.name)); c != 0 {
		return c
	}
	if c := strings.Compare(k.typ, other.typ); c != 0 {
		return c
	}
	return strings.Compare(k.id, other.id)
}

func sorted(records map[key]RecordSet) []key {
	return slices.SortedFunc(maps.Keys(records), key.compare)
}
