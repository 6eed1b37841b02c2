package wiretest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// SameJSON checks that every member of got is a member of want at the same place and
// of the same JSON type; null and empty lists fit everything. want has every member
// set, which is how AWS generates its snapshots. Map-valued members, named in maps,
// may have any keys.
func SameJSON(t testing.TB, got, want []byte, maps ...string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("answer is not JSON: %v\n%s", err, got)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatalf("snapshot is not JSON: %v", err)
	}
	for _, problem := range compareJSON("", g, w, maps) {
		t.Error(problem)
	}
}

func compareJSON(path string, got, want any, maps []string) (problems []string) {
	if got == nil {
		return nil
	}
	switch g := got.(type) {
	case map[string]any:
		w, ok := want.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is an object, not %T", path, want)}
		}
		if slices.Contains(maps, path[strings.LastIndex(path, ".")+1:]) {
			return nil
		}
		for name, v := range g {
			wv, ok := w[name]
			if !ok {
				problems = append(problems, fmt.Sprintf("%s.%s is not in AWS's model", path, name))
				continue
			}
			problems = append(problems, compareJSON(path+"."+name, v, wv, maps)...)
		}
	case []any:
		w, ok := want.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s is a list, not %T", path, want)}
		}
		for _, v := range g {
			problems = append(problems, compareJSON(path+"[]", v, w[0], maps)...)
		}
	default:
		if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
			problems = append(problems, fmt.Sprintf("%s is a %T, not a %T", path, got, want))
		}
	}
	return problems
}

// SameXML checks that every element of got is at a place where want has one too. Of
// the root, ResponseMetadata and RequestId, which snapshots lack, are left out.
func SameXML(t testing.TB, got, want []byte) {
	t.Helper()
	have, err := elements(want)
	if err != nil {
		t.Fatalf("snapshot is not XML: %v", err)
	}
	places, err := elements(got)
	if err != nil {
		t.Fatalf("answer is not XML: %v\n%s", err, got)
	}
	for place := range places {
		if !have[place] && !strings.Contains(place, "/ResponseMetadata") && !strings.HasSuffix(place, "/RequestId") {
			t.Errorf("%s is not in AWS's model", place)
		}
	}
}

// elements are the paths of all elements of a document.
func elements(doc []byte) (map[string]bool, error) {
	d := xml.NewDecoder(bytes.NewReader(doc))
	out := map[string]bool{}
	var path []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		switch e := token.(type) {
		case xml.StartElement:
			path = append(path, e.Name.Local)
			out[strings.Join(path, "/")] = true
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
}
