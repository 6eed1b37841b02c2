package planfile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/eksbg/eksbg/internal/planfile"
)

// violations holds a value against the part of JSON Schema that the plan file's uses.
func violations(root, s map[string]any, v any, path string) (out []string) {
	bad := func(format string, args ...any) { out = append(out, path+": "+fmt.Sprintf(format, args...)) }
	if ref, ok := s["$ref"].(string); ok {
		name := regexp.MustCompile(`^#/\$defs/(\w+)$`).FindStringSubmatch(ref)[1]
		return violations(root, root["$defs"].(map[string]any)[name].(map[string]any), v, path)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		of, ok := s[key].([]any)
		if !ok {
			continue
		}
		n := 0
		for _, one := range of {
			if len(violations(root, one.(map[string]any), v, path)) == 0 {
				n++
			}
		}
		if n == 0 || (key == "oneOf" && n > 1) {
			bad("%d of %s hold", n, key)
		}
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, v) {
		bad("%v is not in %v", v, enum)
	}
	switch v := v.(type) {
	case map[string]any:
		if t, ok := s["type"]; ok && t != "object" {
			bad("is an object, not a %v", t)
			return out
		}
		properties, _ := s["properties"].(map[string]any)
		if required, ok := s["required"].([]any); ok {
			for _, r := range required {
				if _, ok := v[r.(string)]; !ok {
					bad("%v is missing", r)
				}
			}
		}
		for name, e := range v {
			if p, ok := properties[name].(map[string]any); ok {
				out = append(out, violations(root, p, e, path+"."+name)...)
			} else if s["additionalProperties"] == false {
				bad("%s is unknown", name)
			}
		}
	case []any:
		if s["type"] != "array" {
			bad("is an array, not a %v", s["type"])
			return out
		}
		if m, ok := s["minItems"].(float64); ok && float64(len(v)) < m {
			bad("too short")
		}
		for i, e := range v {
			out = append(out, violations(root, s["items"].(map[string]any), e, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case string:
		if s["type"] != nil && s["type"] != "string" {
			bad("is a string, not a %v", s["type"])
		}
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			bad("%q does not match %s", v, p)
		}
	case bool:
		if s["type"] != nil && s["type"] != "boolean" {
			bad("is a truth value, not a %v", s["type"])
		}
	case float64:
		if s["type"] != nil && s["type"] != "number" && s["type"] != "integer" {
			bad("is a number, not a %v", s["type"])
		}
		if m, ok := s["minimum"].(float64); ok && v < m {
			bad("too small")
		}
		if m, ok := s["maximum"].(float64); ok && v > m {
			bad("too large")
		}
	}
	return out
}

func schemaOf(t *testing.T) map[string]any {
	t.Helper()
	b, err := planfile.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// generic reads YAML as JSON would be read.
func generic(t *testing.T, content []byte) map[string]any {
	t.Helper()
	b, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSchemaAndParseAgree leaves out and adds a field at every place of a whole plan
// file: what the schema takes, Parse takes, and the other way round.
func TestSchemaAndParseAgree(t *testing.T) {
	schema := schemaOf(t)
	doc := generic(t, []byte(whole(t)))
	agree := func(what string) {
		t.Helper()
		b, err := json.Marshal(doc) // JSON is YAML
		if err != nil {
			t.Fatal(err)
		}
		bad := violations(schema, schema, doc, "")
		if _, err := planfile.Parse("whole.json", b); (err == nil) != (len(bad) == 0) {
			t.Errorf("%s: Parse says %v, the schema says %v", what, err, bad)
		}
	}
	agree("as it is")
	tried := 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			v["unknown"] = "x"
			agree(path + " with an unknown field")
			delete(v, "unknown")
			for name := range maps.Clone(v) {
				kept := v[name]
				walk(path+"."+name, kept)
				delete(v, name)
				agree(path + " without " + name)
				for _, other := range []any{true, []any{true}, map[string]any{"x": "y"}} {
					v[name] = other
					agree(fmt.Sprintf("%s.%s as %v", path, name, other))
				}
				v[name] = kept
				tried++
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), e)
			}
		}
	}
	walk("", doc)
	if tried < 60 {
		t.Errorf("only %d fields were tried", tried)
	}
}

// TestDefaults holds the defaults that the schema tells against those that Parse sets.
func TestDefaults(t *testing.T) {
	schema := schemaOf(t)
	f, err := planfile.Load("../../plans/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var have map[string]any
	if err := json.Unmarshal(b, &have); err != nil {
		t.Fatal(err)
	}
	told := 0
	var walk func(s map[string]any, v any, path string)
	walk = func(s map[string]any, v any, path string) {
		if ref, ok := s["$ref"].(string); ok {
			s = schema["$defs"].(map[string]any)[ref[len("#/$defs/"):]].(map[string]any)
		}
		if list, ok := v.([]any); ok {
			for _, e := range list {
				walk(s["items"].(map[string]any), e, path+"[]")
			}
			return
		}
		if want, ok := s["default"]; ok {
			told++
			if !sameValue(want, v) {
				t.Errorf("%s is %v where it is left out, and the schema says %v", path, v, want)
			}
		}
		properties, _ := s["properties"].(map[string]any)
		m, _ := v.(map[string]any)
		for name, p := range properties {
			if e, there := m[name]; there {
				walk(p.(map[string]any), e, path+"."+name)
			} else if _, told := p.(map[string]any)["default"]; told {
				t.Errorf("%s.%s has a default and is not there", path, name)
			}
		}
	}
	walk(schema, have, "")
	if told != 19 {
		t.Errorf("%d defaults were compared, want 19", told)
	}
	if h := f.Cutover.Gates[0].HTTP; h.AtLeast != 20 || fmt.Sprint(f.Cutover.Stages) != "[10 50 100]" {
		t.Errorf("at least %d, stages %v", h.AtLeast, f.Cutover.Stages)
	}
}

// sameValue compares as durations what reads as such: 5m and 5m0s are the same.
func sameValue(a, b any) bool {
	var x, y planfile.Duration
	s, ok := a.(string)
	r, ok2 := b.(string)
	if ok && ok2 && x.UnmarshalText([]byte(s)) == nil && y.UnmarshalText([]byte(r)) == nil {
		return x == y
	}
	return a == b
}
