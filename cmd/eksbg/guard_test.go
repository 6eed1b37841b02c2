package main

import (
	stdcmp "cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
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
	{"../../internal/fargate/api.go", "eks:", `^EKSAPI$`},
	{"../../internal/fargate/api.go", "ec2:", `^EC2API$`},
	{"../../internal/fargate/api.go", "servicequotas:", `^QuotasAPI$`},
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
	for _, call := range regexp.MustCompile(`\b(eks|ec2|servicequotas|route53|elasticloadbalancing|sts):[A-Z]\w+`).FindAllString(read(t, "../../docs/permissions.md"), -1) {
		docs[call] = true
	}
	if diff := cmp.Diff(sorted(code), sorted(docs)); diff != "" {
		t.Errorf("docs/permissions.md (+) differs from the code (-):\n%s", diff)
	}
}

// mayKubernetes tells whether a row of the docs has the verb on the resource.
func mayKubernetes(docs, verb, resource string) bool {
	row := regexp.MustCompile(`(?m)^\| ([a-z, ]*\b` + verb + `\b[a-z, ]*) \| (?:[a-z./, ]* )?` + regexp.QuoteMeta(resource) + `(?:\.[a-z.]+)?(?:,[a-z./, ]*)? \|`)
	return row.MatchString(docs)
}

// kubernetesCalls are the verbs and resources that the core's sources call typed
// Kubernetes clients with, each with a file that does.
func kubernetesCalls(t *testing.T) map[string]string {
	t.Helper()
	const kinds = `(Pods|Nodes|Namespaces|Services|PodTemplates|Deployments|StatefulSets|DaemonSets|ReplicaSets|ReplicationControllers|Jobs|CronJobs|` +
		`PodDisruptionBudgets|PriorityClasses|ValidatingWebhookConfigurations|MutatingWebhookConfigurations|Leases|Evictions)`
	call := regexp.MustCompile(`(?s)\.` + kinds + `\([^()]*\)\.\s*(\w+)\b`)
	verbs := map[string]string{"Get": "get", "List": "list", "Watch": "watch", "Create": "create", "Update": "update", "Patch": "patch", "Delete": "delete",
		"EvictV1": "create", "Evict": "create", "Informer": "watch", "GetScale": "get", "UpdateScale": "update", "ApplyScale": "patch", "DeleteCollection": "deletecollection"}
	out := map[string]string{}
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "sandbox" {
			return stdcmp.Or(err, fs.SkipDir)
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, m := range call.FindAllStringSubmatch(read(t, path), -1) {
			verb, resource := verbs[m[2]], strings.ToLower(m[1])
			switch {
			case m[2] == "EvictV1", m[2] == "Evict":
				resource = "pods/eviction"
			case strings.HasSuffix(m[2], "Scale"):
				resource += "/scale"
			case verb == "":
				continue
			}
			out[verb+" "+resource] = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The calls that the core's sources make of typed Kubernetes clients are in the docs,
// those too that no run of these tests comes to; and the docs ask for no change that
// nothing makes.
func TestTheKubernetesCallsInTheSourcesAreInTheDocs(t *testing.T) {
	docs := read(t, "../../docs/permissions.md")
	calls := kubernetesCalls(t)
	for call, path := range calls {
		if verb, resource, _ := strings.Cut(call, " "); !mayKubernetes(docs, verb, resource) {
			t.Errorf("%s calls %s, which is not in docs/permissions.md", path, call)
		}
	}
	// Made otherwise: by an interface of internal/lease, by a dynamic client, by hand, by a
	// client kept in a variable.
	for _, call := range []string{"patch pods", "create podtemplates", "update podtemplates", "create leases", "update leases", "patch rollouts.argoproj.io", "create pods/portforward"} {
		calls[call] = "elsewhere"
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z, ]+) \| ([a-z./, ]+) \|`).FindAllStringSubmatch(docs, -1) {
		for _, verb := range strings.Split(row[1], ", ") {
			for _, resource := range strings.Split(row[2], ", ") {
				switch verb {
				case "create", "update", "patch", "delete":
					if calls[verb+" "+resource] == "" {
						t.Errorf("docs/permissions.md asks for %s %s, which nothing calls", verb, resource)
					}
				}
			}
		}
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
			if !mayKubernetes(docs, verb, resource) {
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
