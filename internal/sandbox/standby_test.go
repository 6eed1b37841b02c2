package sandbox_test

import (
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/sandbox"
)

func TestStandbysThatCannotBe(t *testing.T) {
	blue := strings.Index(minimal, "  blue:")
	green := strings.Index(minimal, "  green:")
	in := func(from int, old, with string) string {
		if !strings.Contains(minimal[from:], old) {
			t.Fatalf("minimal has no %q", old)
		}
		return minimal[:from] + strings.Replace(minimal[from:], old, with, 1)
	}
	alone := minimal[:green]
	for name, c := range map[string]struct{ text, want string }{
		"none is there":            {strings.ReplaceAll(minimal, `version: "1.31"`, "absent: true"), "none is there"},
		"the only one is absent":   {strings.Replace(alone, `version: "1.31"`, "absent: true", 1), "none is there"},
		"traffic of one":           {alone, "plan.traffic needs two clusters"},
		"entrance of nobody":       {alone + minimal[strings.Index(minimal, "zones:"):], `cluster is "green"; it can be blue`},
		"green without a name":     {in(green, "name: tiny-green", "maxNodes: 1"), "clusters.green.name is missing"},
		"absent with node groups":  {in(green, `version: "1.31"`, "absent: true\n    nodegroups: [{name: a, max: 1}]"), "an absent cluster"},
		"absent and idle":          {in(green, `version: "1.31"`, "absent: true\n    idle: true"), "an absent cluster"},
		"a failure of what is not": {in(green, `version: "1.31"`, "absent: true") + "failures: [{cluster: green, percent: 3, status: 502}]\n", "failures"},
		"variant":                  {in(0, "  name: tiny\n", "  name: tiny\n  variant: tepid\n"), `plan.variant is "tepid"`},
		"support type":             {in(blue, `version: "1.31"`, "version: \"1.31\"\n    supportType: LONG"), `supportType is "LONG"`},
		"group without a name":     {in(blue, `version: "1.31"`, "version: \"1.31\"\n    nodegroups: [{max: 1}]"), "nodegroups[0]"},
		"group version":            {in(blue, `version: "1.31"`, "version: \"1.31\"\n    nodegroups: [{name: a, version: \"1.31.2\", max: 1}]"), "1.31.2"},
		"group of no size":         {in(blue, `version: "1.31"`, "version: \"1.31\"\n    nodegroups: [{name: a, desired: 1}]"), "max 0"},
		"images without the first": {in(blue, `version: "1.31"`, "version: \"1.31\"\n    nodegroups: [{name: a, max: 1, images: {\"2\": \"1.32\"}}]"), "version 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sandbox.Parse("tiny", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	s, err := sandbox.Parse("tiny", []byte(strings.Replace(alone, "  traffic: [{record: a.tiny.example.com}]\n", "", 1)))
	if err != nil || len(s.Sides()) != 1 {
		t.Errorf("one alone: %v", err)
	}
}
