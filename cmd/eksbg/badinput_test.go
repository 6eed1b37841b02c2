package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// badInput is a plan file, or an environment, that cannot work.
type badInput struct {
	// edit changes the sandbox's own plan file: regular expression, replacement.
	edit []string
	// env is put behind the sandbox's environment.
	env  []string
	args []string
	// faults disturb the sandbox meanwhile.
	faults []wire.Fault
	// prepare changes the folder of the plan file.
	prepare func(t *testing.T, dir string)
	exit    int
	// says are parts of the message: the thing and the cure.
	says []string
}

var badInputs = map[string]badInput{
	"a field that does not exist":  {edit: []string{`maxParallel`, `maxParalel`}, exit: 1, says: []string{"maxParalel", "did you mean maxParallel"}},
	"a cluster that is not there":  {edit: []string{`\{name: shop-green\}`, `{name: shop-purple}`}, exit: 1, says: []string{"shop-purple"}},
	"a target below":               {edit: []string{`version: "1.33"`, `version: "1.30"`}, exit: 1, says: []string{"1.30", "1.31", "set version"}},
	"a target that is not offered": {edit: []string{`version: "1.33"`, `version: "1.99"`}, exit: 1, says: []string{"1.99", "set version"}},
	"the same cluster twice":       {edit: []string{`\{name: shop-green\}`, `{name: shop-blue}`}, exit: 1, says: []string{"shop-blue", "same"}},
	"a zone that is not there":     {edit: []string{`zone: shop.example.com`, `zone: other.example.com`, `record: api.shop.example.com`, `record: api.other.example.com`}, exit: 1, says: []string{"other.example.com"}},
	"a record that is not there":   {edit: []string{`record: api.shop.example.com`, `record: nope.shop.example.com`}, exit: 1, says: []string{"nope.shop.example.com"}},
	"a member that is not there":   {edit: []string{`setIdentifier: green`, `setIdentifier: purple`}, exit: 1, says: []string{"purple"}},
	"a listener that is not there": {edit: []string{`(listener: ".*/)[0-9a-f]+"`, `${1}0000000000000000"`}, exit: 1, says: []string{"0000000000000000"}},
	"a rule that is not there":     {edit: []string{`listener: "(.*:)listener(/.*)"`, `rule: "${1}listener-rule${2}/0000000000000000"`}, exit: 1, says: []string{"0000000000000000"}},
	"a group that is not there":    {edit: []string{`(targetGroup: ".*shop-green/)[0-9a-f]+"`, `${1}0000000000000000"`}, exit: 1, says: []string{"0000000000000000"}},
	"no credentials": {env: []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_SESSION_TOKEN="}, exit: 1,
		says: []string{"credentials"}},
	"an EKS endpoint that is not there": {env: []string{"AWS_ENDPOINT_URL_EKS=http://127.0.0.1:1"}, exit: 1, says: []string{"127.0.0.1:1"}},
	"a state folder that cannot be written": {exit: 1, says: []string{".eksbg", "--state"}, prepare: func(t *testing.T, dir string) {
		// A file where the folder should be cannot be written by root either.
		if err := os.WriteFile(filepath.Join(dir, ".eksbg"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}},
	"a group of another load balancer": {edit: []string{`(?s)(targetGroup: )"[^"]*shop-green/[0-9a-f]+"(.*targetGroup: )("[^"]*admin-green/[0-9a-f]+")`, `${1}${3}${2}${3}`},
		exit: 1, says: []string{"admin-green", "load balancer"}},
	"an API server that does not answer": {faults: []wire.Fault{{Call: "k8s:*", Times: -1, Reset: "before"}}, exit: 1,
		says: []string{"API server of cluster shop-", "cannot be reached", "endpoint access"}},
	"an --active that is no side": {args: []string{"--active", "purple"}, exit: 1, says: []string{"purple", "blue or green"}},
}

// withAdmin adds a second load balancer with groups of its own.
func withAdmin(sc *sandbox.Scenario) {
	admin := sc.ALBs[0]
	admin.Name, admin.Address, admin.Rules = "admin", "127.31.0.9", nil
	admin.Groups = slices.Clone(admin.Groups)
	admin.Groups[0].Name, admin.Groups[1].Name = "admin-blue", "admin-green"
	admin.Default = sandbox.Forward{Weights: map[string]int32{"admin-blue": 100, "admin-green": 0}}
	sc.ALBs = append(sc.ALBs, admin)
	sc.Plan.Traffic = append(sc.Plan.Traffic, sandbox.Entrance{ALB: "admin"})
}

func TestBadInputIsRefusedBeforeAnythingChanges(t *testing.T) {
	box := startSandbox(t, "hot", testSpeed, withAdmin)
	before := world(t, box)
	text, err := os.ReadFile(box.PlanFile())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range badInputs {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "plan.yaml")
			edited := string(text)
			for i := 0; i+1 < len(tt.edit); i += 2 {
				next := regexp.MustCompile(tt.edit[i]).ReplaceAllString(edited, tt.edit[i+1])
				if next == edited {
					t.Fatalf("%s is not in the plan file:\n%s", tt.edit[i], edited)
				}
				edited = next
			}
			if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, f := range tt.faults {
				if err := box.Faults().Add(f); err != nil {
					t.Fatal(err)
				}
			}
			defer box.Faults().Clear()
			if tt.prepare != nil {
				tt.prepare(t, dir)
			}
			out, exit := runOnce(t, box, tt.env, append([]string{"apply", path, "--yes"}, tt.args...)...)
			if exit != tt.exit {
				t.Errorf("exit %d, want %d", exit, tt.exit)
			}
			said := strings.Join(strings.Fields(out), " ")
			for _, s := range tt.says {
				if !strings.Contains(said, s) {
					t.Errorf("does not say %q:\n%s", s, out)
				}
			}
			if strings.Contains(out, "panic") || strings.Contains(out, "goroutine ") {
				t.Errorf("panics:\n%s", out)
			}
		})
	}
	if after := world(t, box); after != before {
		t.Error("the world changed")
	}
	if m := changing(requests(t, box)); len(m) > 0 {
		t.Errorf("changing calls were made: %v", m)
	}
}

// runOnce runs the binary to its end and gives all it printed.
func runOnce(t *testing.T, box *sandbox.Sandbox, env []string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), args...)
	cmd.Env = append(append(os.Environ(), box.Env()...), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // the exit code tells
	return out.String(), cmd.ProcessState.ExitCode()
}
