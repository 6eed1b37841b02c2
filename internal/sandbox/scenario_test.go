package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBuiltInScenariosLoad(t *testing.T) {
	want := []string{"article", "flaky", "hot", "owners", "stuck"}
	if got := sandbox.Names(); !slices.Equal(got, want) {
		t.Fatalf("built in are %v, want %v", got, want)
	}
	for _, name := range want {
		s, err := sandbox.Load(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Name != name || s.About == "" {
			t.Errorf("%s calls itself %q, about %q", name, s.Name, s.About)
		}
	}
}

// What the issue promises of two of them.
func TestScenariosAreWhatTheyPromise(t *testing.T) {
	hot, err := sandbox.Load("hot")
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		namespaces, kinds := map[string]bool{}, map[string]bool{}
		c := hot.Side(side)
		for _, w := range c.Workloads {
			namespaces[w.Namespace], kinds[w.Kind] = true, true
		}
		if len(c.Workloads) != 10 || len(namespaces) != 4 || !kinds["StatefulSet"] || c.Version != "1.31" || hot.Plan.Version != "1.33" {
			t.Errorf("hot %s: %d workloads in %d namespaces of kinds %v, %s to %s", side, len(c.Workloads), len(namespaces), kinds, c.Version, hot.Plan.Version)
		}
	}
	article, err := sandbox.Load("article")
	if err != nil {
		t.Fatal(err)
	}
	if article.Region != "ap-northeast-1" || article.Side(sandbox.Green).Version != "1.25" || article.Plan.Version != "1.26" || article.KubeletRule != sandbox.KubeletStrict {
		t.Errorf("article: %s, %s to %s, %s", article.Region, article.Side(sandbox.Green).Version, article.Plan.Version, article.KubeletRule)
	}
}

// minimal is a scenario as small as it can be; tests put their own lines in.
const minimal = `name: tiny
region: eu-west-1
plan:
  name: tiny
  version: "1.32"
  traffic: [{record: a.tiny.example.com}]
clusters:
  blue:
    name: tiny-blue
    version: "1.31"
    subnets: [{id: subnet-1, cidr: 10.60.0.0/24, zone: eu-west-1a}]
    fargateProfiles: [{name: all, selectors: [{namespace: "*"}]}]
    workloads:
      - {namespace: web, kind: Deployment, name: web, replicas: 2}
  green:
    name: tiny-green
    version: "1.31"
    subnets: [{id: subnet-2, cidr: 10.61.0.0/24, zone: eu-west-1a}]
    fargateProfiles: [{name: all, selectors: [{namespace: "*"}]}]
    workloads:
      - {namespace: web, kind: Deployment, name: web, replicas: 2}
zones:
  - name: tiny.example.com
    records:
      - {name: a.tiny.example.com, type: A, ttl: 60, setIdentifier: blue, weight: 100, values: [127.31.9.1], serves: {cluster: blue, namespace: web, selector: {app: web}}}
      - {name: a.tiny.example.com, type: A, ttl: 60, setIdentifier: green, weight: 0, values: [127.31.9.2], serves: {cluster: green, namespace: web, selector: {app: web}}}
`

func tiny(t *testing.T, more ...string) *sandbox.Scenario {
	t.Helper()
	s, err := sandbox.Parse("tiny", []byte(minimal+strings.Join(more, "\n")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScenarioIsStrict(t *testing.T) {
	replaced := func(old, with string) string {
		if !strings.Contains(minimal, old) {
			t.Fatalf("minimal has no %q", old)
		}
		return strings.Replace(minimal, old, with, 1)
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown field":       {replaced("region:", "regoin:"), []string{"regoin", "[2:1]"}},
		"unknown deep field":  {replaced("replicas: 2", "replica: 2"), []string{"replica", "[14:"}},
		"duplicate key":       {minimal + "name: again\n", []string{"already defined", "name"}},
		"wrong type":          {replaced("replicas: 2", "replicas: two"), []string{"[14:"}},
		"wrong duration":      {minimal + "durations: {controlPlane: 9 minutes}\n", []string{"9 minutes", "1h30m"}},
		"no unit":             {minimal + "durations: {controlPlane: 9}\n", []string{`"9"`, "1h30m"}},
		"two documents":       {minimal + "---\nname: more\n", []string{"more than one document"}},
		"empty":               {"", []string{"is empty"}},
		"no region":           {replaced("region: eu-west-1", `region: ""`), []string{"region is missing"}},
		"same cluster twice":  {replaced("tiny-green", "tiny-blue"), []string{"same name", "tiny-blue"}},
		"no minor":            {replaced(`version: "1.31"`, `version: "1.31.4"`), []string{"clusters.blue.version", "1.31.4"}},
		"node":                {replaced("kind: Deployment, name: web, replicas: 2", "kind: Pod, name: web, node: n1"), []string{"n1", "workloads[0]"}},
		"webhook":             {replaced("replicas: 2", "replicas: 2, webhook: a.example.com"), []string{"webhook", "port"}},
		"priority class":      {replaced("replicas: 2", "replicas: 2, priorityClass: none"), []string{"priority class", "none"}},
		"two kinds of budget": {replaced("replicas: 2", `replicas: 2, minAvailable: "1", maxDisrupted: "1"`), []string{"minAvailable", "maxDisrupted"}},
		"budget without any":  {replaced("    workloads:\n", "    budgets: [{namespace: web, name: all, selector: {app: web}}]\n    workloads:\n"), []string{"budgets[0]", "minAvailable or maxDisrupted"}},
		"budget of nobody":    {replaced("    workloads:\n", "    budgets: [{namespace: wep, name: all, selector: {app: web}, minAvailable: \"1\"}]\n    workloads:\n"), []string{"budgets[0]", `"wep"`}},
		"running what":        {replaced("replicas: 2", "running: 1"), []string{"ran and running"}},
		"running how long":    {replaced("kind: Deployment, name: web, replicas: 2", "kind: CronJob, name: web, schedule: \"0 0 1 1 *\", running: 1"), []string{"running needs runs"}},
		"ends by itself":      {replaced("replicas: 2", "restartPolicy: Never"), []string{"restartPolicy"}},
		"clones without end":  {replaced("kind: Deployment, name: web, replicas: 2", "kind: CloneSet, name: web, restartPolicy: Never"), []string{"without end"}},
		"restart policy":      {replaced("kind: Deployment, name: web, replicas: 2", "kind: Pod, name: web, restartPolicy: Always"), []string{"Never or OnFailure"}},
		"kind":                {replaced("kind: Deployment", "kind: Gadget"), []string{"Gadget", "workloads[0]"}},
		"strategy":            {replaced("replicas: 2", "replicas: 2, strategy: OnDelete"), []string{"OnDelete", "Recreate"}},
		"no loopback":         {replaced("127.31.9.1", "10.0.0.1"), []string{"10.0.0.1", "loopback"}},
		"address twice":       {replaced("127.31.9.2", "127.31.9.1"), []string{"127.31.9.1 is already"}},
		"record of no zone":   {replaced("record: a.tiny", "record: b.tiny"), []string{"b.tiny.example.com"}},
		"alb of no name":      {replaced("record: a.tiny.example.com", "alb: web"), []string{"alb web has no rule 0"}},
		"weight alone":        {replaced("setIdentifier: blue, ", ""), []string{"setIdentifier and weight"}},
		"kubelet rule":        {minimal + "kubeletRule: lax\n", []string{"lax", "strict"}},
		"fault of nothing":    {minimal + "faults: [{call: \"eks:*\"}]\n", []string{"does nothing"}},
		"fault misspelt":      {minimal + "faults: [{call: \"eks:*\", eror: X}]\n", []string{"eror"}},
		"failure of no side":  {minimal + "failures: [{cluster: red, percent: 3, status: 502}]\n", []string{"red"}},
		"failed update":       {minimal + "updateFailures: [{cluster: green, to: \"1.32\"}]\n", []string{"errors"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "world.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := sandbox.Load(file)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range append(c.want, file) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
	if _, err := sandbox.Parse("tiny", []byte(minimal)); err != nil {
		t.Errorf("minimal itself: %v", err)
	}
}

func TestUnknownScenarioNamesTheOthers(t *testing.T) {
	_, err := sandbox.Load("cold")
	if err == nil || !strings.Contains(err.Error(), "article, flaky, hot, owners, stuck") {
		t.Errorf("got %v", err)
	}
	if _, err := sandbox.Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestDurationsHaveDefaults(t *testing.T) {
	s := tiny(t, "durations: {controlPlane: 4m}")
	if s.Durations.ControlPlane != 4*time.Minute || s.Durations.Insync != 30*time.Second {
		t.Errorf("got %+v", s.Durations)
	}
	if fmt.Sprint(s.Account, s.KubeletRule) != "111122223333skew" {
		t.Errorf("got account %s, rule %s", s.Account, s.KubeletRule)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	for _, name := range sandbox.Names() {
		text, err := os.ReadFile(filepath.Join("scenarios", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := sandbox.Parse("fuzz", text)
		if (s == nil) != (err != nil) {
			t.Errorf("got %v and %v", s, err)
		}
	})
}
