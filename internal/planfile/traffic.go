package planfile

import (
	"fmt"
	"regexp"
	"strings"
)

// dnsForm is a name without wildcards, lower case and without the last dot.
var dnsForm = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

var zoneIDForm = regexp.MustCompile(`^Z[A-Z0-9]{1,31}$`)

// arn is an Amazon Resource Name taken apart.
type arn struct{ partition, service, region, account, resource string }

var accountForm = regexp.MustCompile(`^[0-9]{12}$`)

func parseARN(s string) (arn, bool) {
	p := strings.SplitN(s, ":", 6)
	if len(p) != 6 || p[0] != "arn" || !strings.HasPrefix(p[1], "aws") || !accountForm.MatchString(p[4]) || strings.ContainsAny(s, " \t") {
		return arn{}, false
	}
	a := arn{p[1], p[2], p[3], p[4], p[5]}
	return a, !strings.HasSuffix(a.resource, "/") && strings.Contains(a.resource, "/")
}

// The resources of Application Load Balancers: listener/app/NAME/LB/LISTENER,
// listener-rule/app/NAME/LB/LISTENER/RULE, targetgroup/NAME/ID (Service Authorization
// Reference, Elastic Load Balancing V2).
var (
	listenerForm = regexp.MustCompile(`^listener/app/[A-Za-z0-9-]+/[A-Za-z0-9]+/[A-Za-z0-9]+$`)
	ruleForm     = regexp.MustCompile(`^listener-rule/app/[A-Za-z0-9-]+/[A-Za-z0-9]+/[A-Za-z0-9]+/[A-Za-z0-9]+$`)
	groupForm    = regexp.MustCompile(`^targetgroup/[A-Za-z0-9-]+/[A-Za-z0-9]+$`)
)

// ID names a traffic target in records and messages, the same as long as its entry in
// the plan file is: route53/api.shop.example.com (with the zone's id before the name
// where the plan file gives it), alb/shop/LISTENER for the default action of a
// listener, alb/shop/rule-RULE for a rule, where shop is the load balancer's name.
func (t Target) ID() string {
	switch {
	case t.Route53 != nil && t.Route53.ZoneID != "":
		return "route53/" + t.Route53.ZoneID + "/" + t.Route53.Record
	case t.Route53 != nil:
		return "route53/" + t.Route53.Record
	case t.ALB != nil && t.ALB.Rule != "":
		p := strings.Split(t.ALB.Rule, "/")
		return "alb/" + part(p, 2) + "/rule-" + p[len(p)-1]
	case t.ALB != nil:
		p := strings.Split(t.ALB.Listener, "/")
		return "alb/" + part(p, 2) + "/" + p[len(p)-1]
	}
	return ""
}

func part(p []string, i int) string {
	if i < len(p) {
		return p[i]
	}
	return ""
}

func (v *validator) traffic(targets []Target) {
	if len(targets) == 0 {
		v.bad("traffic", "the list is empty; without an entrance there is nothing to move")
	}
	seen := map[string]int{}
	for i, t := range targets {
		path := fmt.Sprintf("traffic[%d]", i)
		switch {
		case (t.Route53 == nil) == (t.ALB == nil):
			v.bad(path, "a traffic target is one of route53 and alb; begin another list item for the other")
			continue
		case t.Route53 != nil:
			v.route53(path+".route53", t.Route53)
		default:
			v.alb(path+".alb", t.ALB)
		}
		if before, twice := seen[t.ID()]; twice {
			v.bad(path, "it is the same as traffic[%d], %s; list it once", before, t.ID())
		}
		seen[t.ID()] = i
	}
}

// route53 checks a weighted pair and brings its names to one form.
func (v *validator) route53(path string, r *Route53) {
	r.Zone, r.Record = plainName(r.Zone), plainName(r.Record)
	if r.Zone == "" && r.ZoneID == "" {
		v.bad(path, "name the hosted zone with zone or zoneID")
	}
	if r.Zone != "" && !dnsForm.MatchString(r.Zone) {
		v.bad(path+".zone", "%.120q is no name of a zone", r.Zone)
	}
	if r.ZoneID != "" && !zoneIDForm.MatchString(r.ZoneID) {
		v.bad(path+".zoneID", "%.120q is no id of a hosted zone; write it as Z0123456789ABCDEFGHIJ, without /hostedzone/", r.ZoneID)
	}
	apex := r.Record == r.Zone
	switch {
	case strings.HasPrefix(r.Record, "*"):
		v.bad(path+".record", "%.120q is a wildcard, which cannot be probed; name the records", r.Record)
	case !dnsForm.MatchString(r.Record):
		v.bad(path+".record", "%.120q is no name of a record", r.Record)
	case r.Zone != "" && !apex && !strings.HasSuffix(r.Record, "."+r.Zone):
		v.bad(path+".record", "%.120q is not in the zone %s", r.Record, r.Zone)
	}
	if len(r.Types) == 0 {
		v.bad(path+".types", "the list is empty; write [A], [A, AAAA] or [CNAME]")
	}
	v.unique(path+".types", r.Types, func(p, t string) {
		v.word(p, t, types)
		switch {
		case t == "CNAME" && len(r.Types) > 1:
			v.bad(p, "a name with a CNAME has no other records; write [CNAME] alone, or [A, AAAA]")
		case t == "CNAME" && apex:
			v.bad(p, "the name of the zone itself cannot be a CNAME; use alias records of type A and AAAA")
		}
	})
	for i, id := range []string{r.Blue.SetIdentifier, r.Green.SetIdentifier} {
		if len(id) > 128 { // Route 53 API reference, ResourceRecordSet
			v.bad(path+"."+[]string{"blue", "green"}[i]+".setIdentifier", "it has more than 128 characters")
		}
	}
	if r.Blue == r.Green {
		v.bad(path+".green.setIdentifier", "blue and green are the same record set %.120q", r.Green.SetIdentifier)
	}
}

func plainName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

func (v *validator) alb(path string, a *ALB) {
	switch {
	case (a.Listener == "") == (a.Rule == ""):
		v.bad(path, "name either the listener (its default action) or the rule that has the weights")
	case a.Listener != "":
		v.elb(path+".listener", a.Listener, listenerForm, "a listener of an Application Load Balancer")
	default:
		v.elb(path+".rule", a.Rule, ruleForm, "a rule of an Application Load Balancer")
	}
	v.elb(path+".blue.targetGroup", a.Blue.TargetGroup, groupForm, "a target group")
	v.elb(path+".green.targetGroup", a.Green.TargetGroup, groupForm, "a target group")
	if a.Blue == a.Green {
		v.bad(path+".green.targetGroup", "blue and green are the same target group")
	}
}

func (v *validator) elb(path, s string, form *regexp.Regexp, what string) {
	a, ok := parseARN(s)
	switch {
	case !ok || a.service != "elasticloadbalancing" || !form.MatchString(a.resource):
		v.bad(path, "%.120q is no ARN of %s", s, what)
	case a.region != v.file.Region && regionForm.MatchString(v.file.Region):
		v.bad(path, "it is in %s and the pair in %s", a.region, v.file.Region)
	}
}
