package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/restart/survey"
)

// ownerTable is the table of docs/restart.md as the survey's own table has it.
func ownerTable() string {
	words := map[survey.Method]string{
		survey.Rollout: "rolling restart", survey.Evict: "one by one", survey.InOrder: "one by one, in order", survey.RestartAt: "`spec.restartAt`",
		survey.Surge: "one more first", survey.Recreate: "made anew", survey.Wait: "waited for", survey.None: "**nothing**",
	}
	var b strings.Builder
	b.WriteString("| owner | case | restart | allowed: | how |\n|---|---|---|---|---|\n")
	for _, r := range survey.Owners() {
		allowed := ""
		if r.Action != "" {
			allowed = fmt.Sprintf("`%s`: %s", r.Action, words[r.Allowed])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Owner, r.When, words[r.Method], allowed, r.How)
	}
	return b.String()
}

// The table of owners in the guide is the survey's.
func TestTheOwnersInTheDocsAreTheSurveys(t *testing.T) {
	const path = "../../docs/restart.md"
	docs := read(t, path)
	table := regexp.MustCompile(`(?m)^\| owner \| case \|(.*\n\|)*.*\n`)
	if *update {
		docs = table.ReplaceAllLiteralString(docs, ownerTable())
		if err := os.WriteFile(path, []byte(docs), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(ownerTable(), table.FindString(docs)); diff != "" {
		t.Errorf("docs/restart.md differs from the code (-; -update writes it anew):\n%s", diff)
	}
}

// Every permission that the guide and the table speak of is one that plan files know.
func TestTheActionsInTheDocsAreThePlanFiles(t *testing.T) {
	docs := read(t, "../../docs/restart.md")
	known := []string{planfile.ActionEvict, planfile.ActionRecreate, planfile.ActionOutage}
	for _, a := range known {
		if !regexp.MustCompile("(?m)^\\| `" + a + "` \\| ").MatchString(docs) {
			t.Errorf("docs/restart.md does not explain the action %s", a)
		}
	}
	for _, r := range survey.Owners() {
		if r.Action != "" && !strings.Contains(strings.Join(known, " "), r.Action) {
			t.Errorf("%s: no plan file can allow %s", r.Owner, r.Action)
		}
	}
}
