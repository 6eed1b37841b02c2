package planfile

import "github.com/goccy/go-yaml/ast"

// entry is one key of a mapping with its place and value.
type entry struct {
	name  string
	at    place
	value ast.Node
}

// entries lists the keys of a mapping, merged ones (<<) last and only where the
// mapping has no such key itself.
func (d *decoder) entries(values []*ast.MappingValueNode, path string) []entry {
	var out []entry
	var merged []ast.Node
	first := map[string]place{}
	d.nodes += len(values)
	for _, v := range values {
		at := placeOf(v.Key)
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			merged = append(merged, v.Value)
			continue
		}
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.badAt(at, "%q is no name of a field in %s", v.Key.GetToken().Value, named(path))
			continue
		}
		if before, twice := first[key.Value]; twice {
			d.badAt(at, "duplicate field %.60q in %s; it is in line %d already", key.Value, named(path), before.line)
			continue
		}
		first[key.Value] = at
		out = append(out, entry{key.Value, at, v.Value})
	}
	for _, m := range merged {
		if d.tooMany {
			break
		}
		for _, e := range d.merge(m, path) {
			if _, own := first[e.name]; !own {
				first[e.name] = e.at
				out = append(out, e)
			}
		}
	}
	return out
}

func (d *decoder) merge(n ast.Node, path string) []entry {
	at := placeOf(n)
	if n = d.resolve(n); n == nil {
		return nil
	}
	if m, ok := mappingOf(n); ok {
		return d.entries(m, path)
	}
	if s, ok := n.(*ast.SequenceNode); ok {
		var out []entry
		for _, e := range s.Values {
			if d.tooMany {
				break
			}
			out = append(out, d.merge(e, path)...)
		}
		return out
	}
	d.badAt(at, "<< in %s wants an alias of fields, or a list of such", named(path))
	return nil
}
