package main

import (
	stdcmp "cmp"
	"fmt"
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
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/state"
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

// permissionTable is the table of docs/permissions.md as the plan package has it.
func permissionTable() string {
	var b strings.Builder
	b.WriteString("| verbs | resources | for |\n|---|---|---|\n")
	for _, p := range plan.Permissions() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Join(p.Verbs, ", "), strings.Join(p.Resources, ", "), p.For)
	}
	return b.String()
}

// The table of Kubernetes permissions in the guide is the one that plans are asked about by.
func TestThePermissionsInTheDocsAreThePlans(t *testing.T) {
	const path = "../../docs/permissions.md"
	docs := read(t, path)
	table := regexp.MustCompile(`(?m)^\| verbs \| resources \|(.*\n\|)*.*\n`)
	if *update {
		docs = table.ReplaceAllLiteralString(docs, permissionTable())
		if err := os.WriteFile(path, []byte(docs), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(permissionTable(), table.FindString(docs)); diff != "" {
		t.Errorf("docs/permissions.md differs from the code (-; -update writes it anew):\n%s", diff)
	}
}

// clusterRole is that table as a ClusterRole, without what every user may ask anyway. Each
// rule is of one API group, so that it allows no more than the table says.
func clusterRole() string {
	var b strings.Builder
	b.WriteString("# All that eksbg may need of a cluster's API server (permissions.md), held against the code\n" +
		"# by a test. Take out what your plan files never ask for: the preflight says what is missing.\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: eksbg}\nrules:\n")
	for _, p := range plan.Permissions() {
		var groups []string
		of := map[string][]string{}
		for _, r := range p.Resources {
			group, resource, sub := (state.Access{Resource: r}).Split()
			if sub != "" {
				resource += "/" + sub
			}
			if !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
			of[group] = append(of[group], resource)
		}
		if slices.Contains(groups, "authorization.k8s.io") {
			continue
		}
		fmt.Fprintf(&b, "  # %s\n", p.For)
		for _, g := range groups {
			fmt.Fprintf(&b, "  - {apiGroups: [%s], resources: [%s], verbs: [%s]}\n", stdcmp.Or(g, `""`), strings.Join(of[g], ", "), strings.Join(p.Verbs, ", "))
		}
	}
	return b.String()
}

// The ClusterRole beside the guide allows what the table says, and nothing else.
func TestTheClusterRoleIsTheTable(t *testing.T) {
	const path = "../../docs/clusterrole.yaml"
	if *update {
		if err := os.WriteFile(path, []byte(clusterRole()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := read(t, path)
	if diff := cmp.Diff(clusterRole(), text); diff != "" {
		t.Errorf("%s differs from the code (-; -update writes it anew):\n%s", path, diff)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, r := range role.Rules {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				name := resource
				if r.APIGroups[0] != "" {
					name += "." + r.APIGroups[0]
				}
				allowed[verb+" "+withoutGroup(name)] = true
			}
		}
	}
	for _, own := range []string{"create selfsubjectaccessreviews", "create selfsubjectreviews"} {
		allowed[own] = true
	}
	if diff := cmp.Diff(sorted(permitted()), sorted(allowed)); diff != "" {
		t.Errorf("the ClusterRole allows (+) what the table says (-):\n%s", diff)
	}
}

// permitted are the verbs and resources of that table, "patch deployments"; the groups of
// Kubernetes' own resources are left out, since calls are named without.
func permitted() map[string]bool {
	out := map[string]bool{}
	for _, p := range plan.Permissions() {
		for _, r := range p.Resources {
			for _, v := range p.Verbs {
				out[v+" "+withoutGroup(r)] = true
			}
		}
	}
	return out
}

// withoutGroup is a resource as calls name it; that of the custom ones stays.
func withoutGroup(resource string) string {
	name, group, _ := strings.Cut(resource, ".")
	if strings.HasSuffix(group, "argoproj.io") {
		return resource
	}
	return name
}

// kubernetesCalls are the verbs and resources that the core's sources call typed
// Kubernetes clients with, each with a file that does.
func kubernetesCalls(t *testing.T) map[string]string {
	t.Helper()
	const kinds = `(Pods|Nodes|Namespaces|Services|PodTemplates|Deployments|StatefulSets|DaemonSets|ReplicaSets|ReplicationControllers|Jobs|CronJobs|` +
		`PodDisruptionBudgets|PriorityClasses|ValidatingWebhookConfigurations|MutatingWebhookConfigurations|Leases|Evictions|SelfSubjectAccessReviews|SelfSubjectReviews)`
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

// The calls that the core's sources make of typed Kubernetes clients are in the table,
// those too that no run of these tests comes to; and the table has nothing but lists and
// watches that nothing makes.
func TestTheKubernetesCallsInTheSourcesArePermitted(t *testing.T) {
	may := permitted()
	calls := kubernetesCalls(t)
	for call, path := range calls {
		if !may[call] {
			t.Errorf("%s calls %s, which is not in docs/permissions.md", path, call)
		}
	}
	// Made otherwise: by an interface of internal/lease, by a dynamic client, by hand, by a
	// client kept in a variable.
	for _, call := range []string{"patch pods", "create podtemplates", "update podtemplates", "get leases", "create leases", "update leases",
		"get rollouts.argoproj.io", "patch rollouts.argoproj.io", "create pods/portforward"} {
		calls[call] = "elsewhere"
	}
	for call := range may {
		if verb, _, _ := strings.Cut(call, " "); verb != "list" && verb != "watch" && calls[call] == "" {
			t.Errorf("docs/permissions.md asks for %s, which nothing calls", call)
		}
	}
}

// And a whole run calls nothing that is not there.
func TestARunCallsOnlyWhatTheDocsAskFor(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	applyExit(t, box, 0)
	docs, may := read(t, "../../docs/permissions.md"), permitted()
	for _, e := range requests(t, box) {
		service, op, _ := strings.Cut(e.Call, ":")
		switch service {
		case "k8s":
			if _, resource, _ := strings.Cut(op, " "); strings.HasPrefix(resource, "/") {
				continue // /version is open to every authenticated caller
			}
			if !may[op] {
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
