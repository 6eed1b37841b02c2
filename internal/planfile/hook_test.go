package planfile

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/google/go-cmp/cmp"
)

// readHook reads a hook as Parse reads a whole file.
func readHook(t *testing.T, text string) (Hook, error) {
	t.Helper()
	var h Hook
	s := newSource("plan.yaml", []byte(text))
	body := s.parse([]byte(text))
	if body == nil {
		t.Fatal(s.err())
	}
	d := &decoder{source: s, at: map[string]place{}, keys: map[string]place{}, anchors: map[string]ast.Node{}}
	d.collect(body)
	d.decode(body, reflect.ValueOf(&h).Elem(), "hooks.provision")
	if len(s.problems) == 0 {
		(&validator{decoder: d}).hook("hooks.provision", &h)
	}
	return h, s.err()
}

func TestHook(t *testing.T) {
	tests := map[string]struct {
		text string
		want Hook
	}{
		"least": {"command: [terraform, apply]", Hook{
			Command: []string{"terraform", "apply"}, Timeout: Duration(time.Hour), Grace: Duration(time.Minute)}},
		"whole": {`
command: [sh, -c, 'terraform apply -auto-approve | tee out']
check: [terraform, plan, -detailed-exitcode]
timeout: 45m
grace: 5m
idempotent: true
dir: infra/green
env:
  TF_IN_AUTOMATION: "1"
  TF_LOG: ""
`, Hook{Command: []string{"sh", "-c", "terraform apply -auto-approve | tee out"}, Check: []string{"terraform", "plan", "-detailed-exitcode"},
			Timeout: Duration(45 * time.Minute), Grace: Duration(5 * time.Minute), Idempotent: true, Dir: "infra/green",
			Env: map[string]string{"TF_IN_AUTOMATION": "1", "TF_LOG": ""}}},
		"a program whose path has spaces": {"command: ['/opt/our tools/deploy']", Hook{
			Command: []string{"/opt/our tools/deploy"}, Timeout: Duration(time.Hour), Grace: Duration(time.Minute)}},
		"not idempotent": {"command: [make]\nidempotent: false", Hook{
			Command: []string{"make"}, Timeout: Duration(time.Hour), Grace: Duration(time.Minute)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readHook(t, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHookMistakes(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no command":              {"timeout: 5m", "plan.yaml:1:1: hooks.provision has no command"},
		"empty command":           {"command: []", "plan.yaml:1:10: hooks.provision.command: the list is empty; write the program and its arguments"},
		"a command line":          {"command: [terraform apply -auto-approve]", "plan.yaml:1:11: hooks.provision.command[0]: \"terraform apply -auto-approve\" is one item with spaces in it, and no shell takes it apart; write [terraform, apply, -auto-approve], or [sh, -c, '…']"},
		"text":                    {"command: terraform apply", "plan.yaml:1:10: hooks.provision.command wants a list and is text"},
		"home":                    {"command: [~/bin/deploy]", "only a shell knows ~; write the whole path"},
		"empty check":             {"command: [make]\ncheck: []", "plan.yaml:2:8: hooks.provision.check: the list is empty"},
		"no time":                 {"command: [make]\ntimeout: 0s", "hooks.provision.timeout: 0s is not more than nothing"},
		"no grace":                {"command: [make]\ngrace: 0s", "hooks.provision.grace: 0s is not more than nothing"},
		"idempotent in words":     {"command: [make]\nidempotent: yes", "plan.yaml:2:13: hooks.provision.idempotent wants true or false and is text"},
		"eksbg's own variable":    {"command: [make]\nenv: {EKSBG_RUN: mine}", "plan.yaml:2:18: hooks.provision.env.EKSBG_RUN: the names that begin with EKSBG_ are eksbg's own"},
		"no name of a variable":   {"command: [make]\nenv: {AWS-REGION: eu}", "\"AWS-REGION\" is no name of a variable; use letters, digits and _"},
		"variables in a list":     {"command: [make]\nenv: [A=1]", "plan.yaml:2:6: hooks.provision.env wants fields below it and is a list"},
		"number for a variable":   {"command: [make]\nenv: {A: 1}", "hooks.provision.env.A wants text and is the number 1; quote it"},
		"the same variable twice": {"command: [make]\nenv:\n  A: x\n  A: y", "duplicate field \"A\" in hooks.provision.env; it is in line 3 already"},
		"unknown field":           {"command: [make]\nidempotant: true", "unknown field \"idempotant\" in hooks.provision; did you mean idempotent?"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := readHook(t, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}
