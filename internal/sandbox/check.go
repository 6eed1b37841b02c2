package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

var (
	minorPattern = regexp.MustCompile(`^1\.\d+$`)
	kinds        = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Rollout", "CloneSet", "Job", "CronJob", "Pod"}
	strategies   = map[string][]string{
		"Deployment":  {"RollingUpdate", "Recreate"},
		"StatefulSet": {"RollingUpdate", "OnDelete"},
		"DaemonSet":   {"RollingUpdate", "OnDelete"},
	}
)

// check holds a scenario against itself and returns every fault found.
func (s *Scenario) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for field, v := range map[string]string{"name": s.Name, "region": s.Region, "plan.name": s.Plan.Name} {
		if v == "" {
			bad("%s is missing", field)
		}
	}
	if s.KubeletRule != KubeletSkew && s.KubeletRule != KubeletStrict {
		bad("kubeletRule is %q; it can be %q or %q", s.KubeletRule, KubeletSkew, KubeletStrict)
	}
	if !minorPattern.MatchString(s.Plan.Version) {
		bad(`plan.version is %q; write a minor, "1.33"`, s.Plan.Version)
	}
	s.checkSides(bad)
	for _, side := range s.Sides() {
		s.Side(side).check("clusters."+side, bad)
	}
	s.checkAccount(bad)
	s.checkAddresses(bad)
	s.checkTraffic(bad)
	s.checkMishaps(bad)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

type complain func(format string, args ...any)

func (c *Cluster) check(at string, bad complain) {
	if c.Name == "" {
		bad("%s.name is missing", at)
	}
	c.checkStandby(at, bad)
	if !minorPattern.MatchString(c.Version) && (!c.Absent || c.Version != "") {
		bad(`%s.version is %q; write a minor, "1.31"`, at, c.Version)
	}
	if len(c.Subnets) == 0 {
		bad("%s.subnets is empty: Fargate pods need addresses", at)
	}
	for _, n := range c.Subnets {
		if _, err := netip.ParsePrefix(n.CIDR); err != nil {
			bad("%s.subnets: %s: %v", at, n.ID, err)
		}
	}
	seen := map[string]bool{}
	for i, w := range c.Workloads {
		here := fmt.Sprintf("%s.workloads[%d]", at, i)
		id := w.Namespace + "/" + w.Kind + "/" + w.Name
		switch {
		case w.Namespace == "" || w.Name == "":
			bad("%s needs a namespace and a name", here)
		case !slices.Contains(kinds, w.Kind):
			bad("%s: kind %q; it can be %s", here, w.Kind, strings.Join(kinds, ", "))
		case seen[id]:
			bad("%s: %s is there twice", here, id)
		default:
			w.check(c, here, bad)
		}
		seen[id] = true
	}
	for i, b := range c.Budgets {
		b.check(c, fmt.Sprintf("%s.budgets[%d]", at, i), bad)
	}
	if c.GitOps != nil {
		c.GitOps.check(c, at+".gitops", bad)
	}
	for _, d := range c.Deny {
		d.check(at, bad)
	}
	for _, n := range c.Nodes {
		if n.Name == "" || n.Kubelet != "" && !minorPattern.MatchString(n.Kubelet) {
			bad("%s.nodes: %q needs a name, and a minor as kubelet", at, n.Name)
		}
	}
}

// checkAddresses wants every entrance at a loopback address of its own.
func (s *Scenario) checkAddresses(bad complain) {
	seen := map[netip.Addr]string{}
	use := func(who, addr string) {
		a, err := netip.ParseAddr(addr)
		switch {
		case err != nil || !a.IsLoopback():
			bad("%s: %q is no loopback address", who, addr)
		case seen[a] != "":
			bad("%s: %s is already the address of %s", who, a, seen[a])
		}
		seen[a] = who
	}
	albs := map[string]bool{}
	for _, b := range s.ALBs {
		use("alb "+b.Name, b.Address)
		albs[b.Name] = true
	}
	for _, z := range s.Zones {
		for _, r := range z.Records {
			who := strings.TrimSpace("record " + r.Name + " " + r.SetIdentifier)
			if r.Name != z.Name && !strings.HasSuffix(r.Name, "."+z.Name) {
				bad("%s is not in zone %s", who, z.Name)
			}
			if (r.SetIdentifier == "") != (r.Weight == nil) {
				bad("%s: setIdentifier and weight go together", who)
			}
			if r.Alias != "" && !albs[r.Alias] {
				bad("%s: alias %q is no alb of the scenario", who, r.Alias)
			}
			if (r.Alias == "") == (len(r.Values) == 0) {
				bad("%s needs either values or an alias", who)
			}
			if r.Serves == nil {
				continue
			}
			s.checkBackend(who, *r.Serves, bad)
			for _, v := range r.Values {
				use(who, v)
			}
		}
	}
}

func (s *Scenario) checkBackend(who string, b Backend, bad complain) {
	if !slices.Contains(s.Sides(), b.Cluster) {
		bad("%s: cluster is %q; it can be %s", who, b.Cluster, strings.Join(s.Sides(), " or "))
	}
	if b.Namespace == "" || len(b.Selector) == 0 {
		bad("%s needs a namespace and a selector", who)
	}
}

func (s *Scenario) checkTraffic(bad complain) {
	rules := map[string]bool{}
	for _, b := range s.ALBs {
		groups := map[string]bool{}
		for _, g := range b.Groups {
			s.checkBackend("target group "+g.Name, g.Backend, bad)
			groups[g.Name] = true
		}
		forwards := map[int]Forward{0: b.Default}
		for _, r := range b.Rules {
			if (r.Fixed == nil) == (len(r.Weights) == 0) {
				bad("alb %s: rule %d needs either weights or a fixed answer", b.Name, r.Priority)
			}
			if r.Fixed == nil {
				forwards[r.Priority] = r.Forward
			}
		}
		for prio, f := range forwards {
			rules[fmt.Sprint(b.Name, " ", prio)] = true
			for g, w := range f.Weights {
				if !groups[g] {
					bad("alb %s forwards to %q, which is none of its target groups", b.Name, g)
				}
				if w < 0 || w > 999 {
					bad("alb %s: the weight of %s is %d; it can be 0 to 999", b.Name, g, w)
				}
			}
		}
	}
	for _, e := range s.Plan.Traffic {
		switch {
		case (e.Record == "") == (e.ALB == ""):
			bad("plan.traffic: each entry names a record or an alb")
		case e.ALB != "" && !rules[fmt.Sprint(e.ALB, " ", e.Rule)]:
			bad("plan.traffic: alb %s has no rule %d", e.ALB, e.Rule)
		case e.Record != "" && len(s.members(e.Record)) == 0:
			bad("plan.traffic: no zone has a weighted record %s", e.Record)
		}
	}
	for i, g := range s.Plan.Gates {
		if (g.TargetHealth == "") == (g.HTTP == nil) {
			bad("plan.gates[%d] needs exactly one of targetHealth and http", i)
		}
	}
}

func (s *Scenario) checkMishaps(bad complain) {
	for _, u := range s.Updates {
		if s.clusterNamed(u.Cluster) == nil || len(u.Errors) == 0 {
			bad("updateFailures: %s to %s needs a side as cluster, and errors", u.Cluster, u.To)
		}
	}
	for _, i := range s.Insights {
		if s.clusterNamed(i.Cluster) == nil || i.Name == "" {
			bad("insights: %q needs a side as cluster, and a name", i.Name)
		}
	}
	for _, f := range s.Failures {
		if s.clusterNamed(f.Cluster) == nil || f.Percent <= 0 || f.Percent > 100 {
			bad("failures: %s needs a side as cluster, and a per cent of 100", f.Cluster)
		}
	}
	if _, err := wire.NewFaults(nil, s.Faults...); err != nil {
		bad("faults: %w", err)
	}
}

func (s *Scenario) clusterNamed(side string) *Cluster {
	if !slices.Contains(s.Sides(), side) || s.Side(side).Absent {
		return nil // updates, insights and failures are of what is there
	}
	return s.Side(side)
}

// members lists the weighted sets of a record.
func (s *Scenario) members(record string) []Record {
	var ms []Record
	for _, z := range s.Zones {
		for _, r := range z.Records {
			if r.Name == record && r.Weight != nil {
				ms = append(ms, r)
			}
		}
	}
	return ms
}
