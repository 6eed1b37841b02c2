package sandbox

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// planTemplate is the plan file as a user would have written it. Its holds and
// intervals are values of the user's, so they are small here where the world is fast.
var planTemplate = template.Must(template.New("plan").Funcs(template.FuncMap{
	"q": strconv.Quote,
}).Parse(`# The plan file of the sandbox {{.Scenario}}. Look at it with: eksbg plan {{.Path}}
apiVersion: eksbg.dev/v1
kind: UpgradePlan
name: {{.Plan.Name}}
region: {{.Region}}
variant: {{.Plan.Variant}}
version: {{q .Plan.Version}}

clusters:
  blue:  {name: {{.Blue}}}
{{- with .Green}}
  green: {name: {{.}}}{{end}}
{{- with .Waive}}

waive:
{{- range .}}
  - {check: {{.What}}, reason: {{q .Reason}}, until: {{.Until}}}
{{- end}}{{end}}

upgrade:
  addons: {{with .Plan.Addons}}{{.}}{{else}}required{{end}}
{{- with .Plan.Polling}}
  polling: {{.}}{{end}}
{{- if .Restart}}

restart:
{{- with .Plan.MaxParallel}}
  maxParallel: {{.}}{{end}}
{{- with .Plan.Order}}
  order: [{{range $i, $n := .}}{{if $i}}, {{end}}{{$n}}{{end}}]{{end}}
{{- with .Plan.Timeout}}
  timeout: {{.}}{{end}}
{{- with .Plan.Pending}}
  pending: {{.}}{{end}}
{{- with .Plan.JobTimeout}}
  jobTimeout: {{.}}{{end}}
{{- with .Plan.CronJobs}}
  cronJobs: {{.}}{{end}}
{{- with .Plan.FinishedJobs}}
  finishedJobs: {{.}}{{end}}
{{- with .Plan.FinishedAge}}
  finishedAge: {{.}}{{end}}
{{- with .Plan.Resolve}}
  resolve: {{q .}}{{end}}
{{- with .Plan.Allow}}
  allow:
{{- range .}}
    - {owner: {{.Owner}}, action: {{.Action}}, reason: {{q .Reason}}}
{{- end}}{{end}}
{{- with .Skip}}
  skip:
{{- range .}}
    - {owner: {{.What}}, reason: {{q .Reason}}, until: {{.Until}}}
{{- end}}{{end}}{{end}}
{{- if .Traffic}}

capacity: check

traffic:
{{- range .Traffic}}
{{- if .Record}}
  - route53:
      zone: {{.Zone}}
      record: {{.Record}}
      types: [{{range $i, $t := .Types}}{{if $i}}, {{end}}{{$t}}{{end}}]
      blue:  {setIdentifier: {{.Blue}}}
      green: {setIdentifier: {{.Green}}}
{{- else}}
  - alb:
      {{if .Rule}}rule: {{q .Rule}}{{else}}listener: {{q .Listener}}{{end}}
      blue:  {targetGroup: {{q .Blue}}}
      green: {targetGroup: {{q .Green}}}
{{- end}}{{end}}

cutover:
{{- with .Plan.Stages}}
  stages: [{{range $i, $n := .}}{{if $i}}, {{end}}{{$n}}{{end}}]{{end}}
{{- with .Plan.Hold}}
  hold: {{.}}{{end}}
{{- with .Plan.Patience}}
  patience: {{.}}{{end}}
{{- with .Plan.OnStop}}
  onStop: {{.}}{{end}}
{{- with .Gates}}
  gates:
{{- range .}}
{{- with .TargetHealth}}
    - targetHealth: {atLeast: {{.}}}{{end}}
{{- with .HTTP}}
    - http:
        url: {{q .URL}}
        resolver: {{q $.Resolver}}
{{- with .Expect}}
        expect: {{.}}{{end}}
{{- with .Success}}
        success: {{.}}{{end}}
{{- with .Samples}}
        samples: {{.}}{{end}}
{{- with .Over}}
        over: {{.}}{{end}}
{{- with .Timeout}}
        timeout: {{.}}{{end}}
{{- with .AtLeast}}
        atLeast: {{.}}{{end}}
{{- end}}{{end}}{{end}}{{end}}
{{- with .Plan.Approvals}}

approvals: [{{range $i, $n := .}}{{if $i}}, {{end}}{{$n}}{{end}}]{{end}}
{{- with .Plan.More}}

{{.}}{{end}}
`))

// planData is what the template shows.
type planData struct {
	Scenario, Path, Region, Blue, Green, Resolver string
	Plan                                          Plan
	Gates                                         []Gate
	Waive, Skip                                   []accepted
	Traffic                                       []planTarget
	// Restart is true where restart is more than its defaults.
	Restart bool
}

// accepted is a waiver or a skip with its last day.
type accepted struct{ What, Reason, Until string }

// planTarget is a record, or a listener or rule, with how its members are named.
type planTarget struct {
	Zone, Record   string
	Types          []string
	Listener, Rule string
	Blue, Green    string
}

// plan writes the plan file of this world.
func (s *Sandbox) plan() ([]byte, error) {
	data := planData{
		Scenario: s.scenario.Name, Path: s.PlanFile(), Region: s.scenario.Region, Plan: s.scenario.Plan,
		Blue: s.scenario.Clusters.Blue.Name, Green: s.scenario.Clusters.Green.Name, Resolver: s.dns.Addr(),
	}
	data.Plan.More = strings.TrimSpace(strings.ReplaceAll(data.Plan.More, "$DIR", s.dir))
	for _, w := range s.scenario.Plan.Waive {
		data.Waive = append(data.Waive, accepted{w.Check, w.Reason, s.day(w.Days)})
	}
	for _, k := range s.scenario.Plan.Skip {
		data.Skip = append(data.Skip, accepted{k.Owner, k.Reason, s.day(k.Days)})
	}
	p := s.scenario.Plan
	data.Restart = p.MaxParallel > 0 || p.Timeout > 0 || p.Pending > 0 || p.JobTimeout > 0 || p.FinishedAge > 0 ||
		len(p.Order)+len(p.Skip)+len(p.Allow)+len(p.CronJobs)+len(p.FinishedJobs)+len(p.Resolve) > 0
	for _, e := range p.Traffic {
		t, err := s.target(e)
		if err != nil {
			return nil, err
		}
		data.Traffic = append(data.Traffic, t)
	}
	for _, g := range s.scenario.Plan.Gates {
		if g.HTTP != nil {
			h := *g.HTTP
			u, err := url.Parse(h.URL)
			if err != nil {
				return nil, fmt.Errorf("plan.gates: %w", err)
			}
			u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(s.edge.Port()))
			h.URL = u.String()
			g.HTTP = &h
		}
		data.Gates = append(data.Gates, g)
	}
	var b bytes.Buffer
	if err := planTemplate.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("write the plan file: %w", err)
	}
	return b.Bytes(), nil
}

// day is a date some days from the start, in UTC.
func (s *Sandbox) day(days int) string { return s.born.UTC().AddDate(0, 0, days).Format(time.DateOnly) }

// target names the members of an entrance: which is blue's and which green's.
func (s *Sandbox) target(e Entrance) (planTarget, error) {
	t := planTarget{Record: e.Record, Types: e.Types}
	if e.Record != "" {
		if len(t.Types) == 0 {
			t.Types = []string{"A"}
		}
		for _, z := range s.scenario.Zones {
			for _, r := range z.Records {
				if r.Name == e.Record && r.Weight != nil {
					t.Zone = z.Name
					t.put(s.sideOf(r), r.SetIdentifier)
				}
			}
		}
	}
	for _, b := range s.balancers {
		if b.Name != e.ALB {
			continue
		}
		t.Listener = b.listener
		if e.Rule != 0 {
			t.Rule = b.rules[e.Rule]
		}
		for _, g := range b.Groups {
			if arn := s.groups.arn(g.Name); t.of(g.Cluster) == "" {
				t.put(g.Cluster, arn)
			}
		}
	}
	if t.Blue == "" || t.Green == "" {
		return t, fmt.Errorf("plan.traffic: %s%s has no member for each side", e.Record, e.ALB)
	}
	return t, nil
}

// sideOf is the side that a weighted set leads to: what it serves, or its name.
func (s *Sandbox) sideOf(r Record) string {
	if r.Serves != nil {
		return r.Serves.Cluster
	}
	return r.SetIdentifier
}

func (t *planTarget) put(side, name string) {
	switch side {
	case Blue:
		t.Blue = name
	case Green:
		t.Green = name
	}
}

func (t *planTarget) of(side string) string {
	if side == Green {
		return t.Green
	}
	return t.Blue
}

// arn finds a target group by its name.
func (g *groups) arn(name string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for arn, v := range g.byARN {
		if v.name == name {
			return arn
		}
	}
	return ""
}
