package cutover

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// Changing calls have one way each: the API's in the send methods, those in carry, and
// carry only with the seq of an intent, in begin. (That the intent describes the call is
// checked by the fakes, in every test.)
func TestChangingCallsHaveOneWay(t *testing.T) {
	want := map[string][]string{
		"ChangeResourceRecordSets": {"send"},
		"ModifyListener":           {"send"},
		"ModifyRule":               {"send"},
		"send":                     {"carry"},
		"carry":                    {"begin"},
		"Intent":                   {"Intent", "begin"}, // the tolerant recorder passes it on
	}
	got := map[string][]string{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && want[sel.Sel.Name] != nil && !slices.Contains(got[sel.Sel.Name], fn.Name.Name) {
					got[sel.Sel.Name] = append(got[sel.Sel.Name], fn.Name.Name)
				}
				return true
			})
		}
	}
	for name, callers := range want {
		slices.Sort(got[name])
		if !slices.Equal(got[name], callers) {
			t.Errorf("%s is called in %q, want %q", name, got[name], callers)
		}
	}
}
