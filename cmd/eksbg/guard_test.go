package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The interfaces through which the core calls AWS, with the prefix that IAM gives
// their methods.
var callers = []struct{ file, prefix, pattern string }{
	{"../../internal/upgrade/api.go", "eks:", `API$`},
	{"../../internal/cluster/client.go", "eks:", `^EKSAPI$`},
	{"../../internal/cutover/api.go", "route53:", `^Route53API$`},
	{"../../internal/cutover/api.go", "elasticloadbalancing:", `^ELBv2API$`},
	{"../../internal/aws/identity.go", "sts:", `^STSAPI$`},
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// What docs/permissions.md asks for is what the code can call, no more and no less.
func TestThePermissionsInTheDocsAreTheCallsInTheCode(t *testing.T) {
	code := map[string]bool{}
	for _, c := range callers {
		name := regexp.MustCompile(c.pattern)
		ast.Inspect(parse(t, c.file), func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !name.MatchString(spec.Name.Name) {
				return true
			}
			if iface, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, m := range iface.Methods.List {
					for _, id := range m.Names {
						code[c.prefix+id.Name] = true
					}
				}
			}
			return false
		})
	}
	docs := map[string]bool{}
	for _, call := range regexp.MustCompile(`\b(eks|route53|elasticloadbalancing|sts):[A-Z]\w+`).FindAllString(read(t, "../../docs/permissions.md"), -1) {
		docs[call] = true
	}
	if diff := cmp.Diff(sorted(code), sorted(docs)); diff != "" {
		t.Errorf("docs/permissions.md (+) differs from the code (-):\n%s", diff)
	}
}

// And a whole run calls nothing that is not there.
func TestARunCallsOnlyWhatTheDocsAskFor(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	applyExit(t, box, 0)
	docs := read(t, "../../docs/permissions.md")
	for _, e := range requests(t, box) {
		service, op, _ := strings.Cut(e.Call, ":")
		switch service {
		case "k8s":
			verb, resource, _ := strings.Cut(op, " ")
			if strings.HasPrefix(resource, "/") {
				continue // /version is open to every authenticated caller
			}
			row := regexp.MustCompile(`(?m)^\| ([a-z, ]*\b` + verb + `\b[a-z, ]*) \| ([a-z, ]*\b` + resource + `\b[a-z, ]*) \|$`)
			if !row.MatchString(docs) {
				t.Errorf("%s is not in docs/permissions.md", e.Call)
			}
		case "elbv2":
			service = "elasticloadbalancing"
			fallthrough
		default:
			if !strings.Contains(docs, service+":"+op) {
				t.Errorf("%s is not in docs/permissions.md", e.Call)
			}
		}
	}
}

// Every exit code is documented, in the guide and in the help, and no other is.
func TestExitCodesAreDocumented(t *testing.T) {
	code := map[string]bool{}
	ast.Inspect(parse(t, "../../internal/state/step.go"), func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Names) != 1 || !strings.HasPrefix(v.Names[0].Name, "Exit") {
			return true
		}
		if lit, ok := v.Values[0].(*ast.BasicLit); ok {
			code[lit.Value] = true
		}
		return true
	})
	docs := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(read(t, "../../docs/run.md"), -1) {
		docs[m[1]] = true
	}
	if diff := cmp.Diff(sorted(code), sorted(docs)); diff != "" {
		t.Errorf("docs/run.md (+) differs from internal/state (-):\n%s", diff)
	}
	help := newRoot(streams{}).Long
	for c := range code {
		n, err := strconv.Atoi(c)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?s)Exit codes:.*\b` + strconv.Itoa(n) + ` `).MatchString(help) {
			t.Errorf("exit code %d is not in eksbg --help", n)
		}
	}
}
