package planfile

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// maxNodes bounds how many values a file holds once its aliases are followed.
const maxNodes = 20000

// decoder fills the types from the syntax tree. It walks the tree itself, so that
// every value keeps its place: a mistake that only validation sees is shown there too.
type decoder struct {
	*source
	// at has the place of each value by its path (cutover.stages[1]), keys that of the
	// key or list item it is under. What is left out has no place.
	at, keys map[string]place
	anchors  map[string]ast.Node
	nodes    int
	tooMany  bool
}

type place struct{ line, column int }

func placeOf(n ast.Node) place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return placeOf(n.Values[0])
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key)
	}
	return placeOfToken(n.GetToken())
}

func placeOfToken(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

func (d *decoder) badAt(p place, format string, args ...any) {
	d.bad(p.line, p.column, format, args...)
}

// collect finds the anchors before anything is decoded.
func (d *decoder) collect(n ast.Node) {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			d.collect(v)
		}
	case *ast.MappingValueNode:
		d.collect(n.Value)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			d.collect(v)
		}
	case *ast.TagNode:
		d.collect(n.Value)
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		if _, twice := d.anchors[name]; twice {
			d.badAt(placeOf(n), "anchor &%s is there twice", name)
		}
		d.anchors[name] = n
		d.collect(n.Value)
	}
}

// resolve follows anchors and aliases to a plain value; nil when there is none, which
// has been noted then.
func (d *decoder) resolve(n ast.Node) ast.Node {
	if d.nodes++; d.nodes > maxNodes {
		if !d.tooMany {
			d.badAt(placeOf(n), "the file holds more than %d values once its aliases are followed", maxNodes)
		}
		d.tooMany = true
		return nil
	}
	switch v := n.(type) {
	case *ast.AnchorNode:
		return d.resolve(v.Value)
	case *ast.AliasNode:
		name := v.Value.GetToken().Value
		anchor, ok := d.anchors[name]
		a, b := v.GetToken().Position, place{}
		if ok {
			b = placeOf(anchor)
		}
		if !ok || a.Line < b.line || (a.Line == b.line && a.Column < b.column) {
			d.badAt(placeOf(n), "alias *%s has no anchor &%s before it", name, name)
			return nil
		}
		return d.resolve(anchor)
	case *ast.TagNode:
		d.badAt(placeOf(n), "tags such as %s are not read; leave it out, and quote what should be text", v.GetToken().Value)
		return nil
	}
	return n
}

// decode fills v from n. A path is what messages call the value.
func (d *decoder) decode(n ast.Node, v reflect.Value, path string) {
	d.at[path] = placeOf(n)
	if n = d.resolve(n); n == nil {
		return
	}
	if _, null := n.(*ast.NullNode); null {
		d.badAt(d.keys[path], "%s has no value; give it one, or leave it out", path)
		return
	}
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(n, t, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), path)
	case reflect.Struct:
		if m, ok := mappingOf(n); ok {
			d.mapping(m, v, path)
		} else {
			d.wrong(n, path, "fields below it")
		}
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.String:
		s, ok := textOf(n)
		switch {
		case !ok:
			d.wrong(n, path, "text")
		case s == "":
			d.badAt(placeOf(n), "%s is empty; give it a value, or leave it out", path)
		case strings.ContainsFunc(s, unicode.IsControl):
			d.badAt(placeOf(n), "%s wants one line of text without control characters", path)
		default:
			v.SetString(s)
		}
	case reflect.Int:
		d.number(n, v, path)
	case reflect.Bool:
		d.truth(n, v, path)
	case reflect.Map:
		d.texts(n, v, path)
	default:
		panic("planfile: no decoding for a field of type " + v.Type().String())
	}
}

func mappingOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	}
	return "", false
}

func (d *decoder) text(n ast.Node, t encoding.TextUnmarshaler, path string) {
	s, ok := textOf(n)
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		s, ok = n.GetToken().Value, true
	}
	if !ok {
		d.wrong(n, path, map[bool]string{true: "a date", false: "a value such as 5m or 99%"}[reflect.TypeOf(t) == reflect.TypeFor[*Date]()])
		return
	}
	if err := t.UnmarshalText([]byte(s)); err != nil {
		d.badAt(placeOf(n), "%s: %v", path, err)
	}
}

var (
	decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,8})$`)
	digits  = regexp.MustCompile(`^[0-9]{19,}$`)
)

func (d *decoder) number(n ast.Node, v reflect.Value, path string) {
	s := n.GetToken().Value
	// The parser takes a number of more than 64 bits for text.
	if _, ok := n.(*ast.IntegerNode); !ok && !digits.MatchString(s) {
		d.wrong(n, path, "a whole number")
		return
	}
	if !decimal.MatchString(s) {
		d.badAt(placeOf(n), "%s: write %s as a plain decimal number of at most nine digits", path, s)
		return
	}
	i, _ := strconv.Atoi(s) // the form is checked
	v.SetInt(int64(i))
}

// wrong notes a value of the wrong type.
func (d *decoder) wrong(n ast.Node, path, want string) {
	have := ""
	switch n := n.(type) {
	case *ast.SequenceNode:
		have = "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		have = "fields"
	case *ast.StringNode, *ast.LiteralNode:
		have = "text"
	case *ast.FloatNode, *ast.IntegerNode:
		s := n.GetToken().Value
		if path == "version" {
			d.badAt(placeOf(n), "version: %s without quotes is a number, and YAML takes 1.30 for 1.3; write \"%s\"", s, s)
			return
		}
		have = "the number " + s
	case *ast.BoolNode:
		have = "the truth value " + n.GetToken().Value
	default:
		have = "something else"
	}
	cure := ""
	switch n.(type) {
	case *ast.FloatNode, *ast.IntegerNode, *ast.BoolNode:
		if want == "text" {
			cure = fmt.Sprintf("; quote it: \"%s\"", n.GetToken().Value)
		}
	}
	d.badAt(placeOf(n), "%s wants %s and is %s%s", named(path), want, have, cure)
}

// named is what a message calls the value at a path.
func named(path string) string {
	if path == "" {
		return "the plan file"
	}
	return path
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.wrong(n, path, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, e := range s.Values {
		if d.tooMany {
			break
		}
		p := fmt.Sprintf("%s[%d]", path, i)
		d.keys[p] = placeOf(e)
		d.decode(e, out.Index(i), p)
	}
	v.Set(out)
}

// defaulter is a type whose fields mean something when they are left out.
type defaulter interface{ setDefaults() }

// mapping fills a struct: every key must be a field of it, once, and every field
// without omitempty must be there.
func (d *decoder) mapping(values []*ast.MappingValueNode, v reflect.Value, path string) {
	if t, ok := v.Addr().Interface().(defaulter); ok {
		t.setDefaults()
	}
	entries := d.entries(values, path)
	names, required := fieldsOf(v.Type())
	seen := map[string]bool{}
	for _, e := range entries {
		i, ok := names[e.name]
		if !ok {
			d.badAt(e.at, "unknown field %.60q in %s%s", e.name, named(path), meant(e.name, fieldOrder(v.Type())))
			continue
		}
		seen[e.name] = true
		p := e.name
		if path != "" {
			p = path + "." + e.name
		}
		d.keys[p] = e.at
		d.decode(e.value, v.Field(i), p)
	}
	required = slices.DeleteFunc(required, func(name string) bool { return seen[name] })
	if len(required) > 0 {
		d.badAt(d.placeOfOwner(path), "%s has no %s", named(path), strings.Join(required, ", no "))
	}
}

// placeOfOwner is where a message about what is missing below a path belongs.
func (d *decoder) placeOfOwner(path string) place {
	if p, ok := d.keys[path]; ok {
		return p
	}
	return d.at[path]
}

// fieldsOf reads the names of a struct's fields, and which are required, from its tags.
func fieldsOf(t reflect.Type) (names map[string]int, required []string) {
	names = map[string]int{}
	for i := range t.NumField() {
		name, rest, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name == "-" || name == "" {
			continue
		}
		names[name] = i
		if rest != "omitempty" {
			required = append(required, name)
		}
	}
	return names, required
}

func fieldOrder(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); name != "-" && name != "" {
			out = append(out, name)
		}
	}
	return out
}
