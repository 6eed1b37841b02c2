package planfile

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The values that words may have. Those that come later are told from mistakes.
var (
	variants  = words{known: []string{"hot"}, later: []string{"warm", "cold", "in-place"}}
	addons    = words{known: []string{"required", "keep"}, later: []string{"latest"}}
	capacity  = words{known: []string{"check"}, later: []string{"match"}}
	onStop    = words{known: []string{"back", "hold"}}
	approvals = words{known: []string{"upgrade", "restart", "restart-live", "capacity", "cutover"}, later: []string{"settle", "teardown"}}
	types     = words{known: []string{"A", "AAAA", "CNAME"}}
)

type words struct{ known, later []string }

var (
	// A dot would let the journal of one pair look like an archived one of another.
	nameForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	regionForm  = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)
	versionForm = regexp.MustCompile(`^1\.(0|[1-9][0-9]{0,2})$`)
	// EKS API reference, CreateCluster, name.
	clusterForm = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)
)

// validator holds the values against what can be told without looking at the world.
type validator struct {
	*decoder
	file *File
}

// bad notes a mistake in the value at a path, or where that was left out in what it
// belongs to.
func (v *validator) bad(path, format string, args ...any) {
	for at := path; ; {
		if p, ok := v.at[at]; ok {
			v.badAt(p, "%s: %s", path, fmt.Sprintf(format, args...))
			return
		}
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
}

func (v *validator) given(path string) bool {
	_, ok := v.at[path]
	return ok
}

func (v *validator) word(path, have string, w words) {
	switch {
	case slices.Contains(w.known, have):
	case slices.Contains(w.later, have):
		v.bad(path, "%s is not built yet; %s", have, oneOf(w.known))
	default:
		hint := ""
		if n := near(have, w.known); n != "" {
			hint = "; did you mean " + n + "?"
		}
		v.bad(path, "%.120q is none of %s%s", have, strings.Join(w.known, ", "), hint)
	}
}

func oneOf(known []string) string {
	if len(known) == 1 {
		return "it can be " + known[0]
	}
	return "it can be one of " + strings.Join(known, ", ")
}

func (v *validator) check() {
	f := v.file
	v.word("apiVersion", f.APIVersion, words{known: []string{APIVersion}})
	v.word("kind", f.Kind, words{known: []string{Kind}})
	if !nameForm.MatchString(f.Name) {
		v.bad("name", "%.120q cannot name a journal; use letters, digits, - and _, at most 63 in all", f.Name)
	}
	if !regionForm.MatchString(f.Region) {
		v.bad("region", "%.120q is no AWS region; write it as ap-northeast-1", f.Region)
	}
	v.word("variant", f.Variant, variants)
	v.version(f.Version)
	v.clusters(f.Clusters)
	v.word("capacity", f.Capacity, capacity)
	v.word("upgrade.addons", f.Upgrade.Addons, addons)
	v.positive("upgrade.polling", f.Upgrade.Polling)
	v.waivers(f.Waive)
	v.restart(&f.Restart)
	v.traffic(f.Traffic)
	v.cutover(f.Cutover)
	v.unique("approvals", f.Approvals, func(path, a string) { v.word(path, a, approvals) })
}

func (v *validator) version(s string) {
	if versionForm.MatchString(s) {
		return
	}
	cure := `write a minor such as "1.33"`
	if m := regexp.MustCompile(`^v?(1\.[0-9]+)(\.[0-9].*)?$`).FindStringSubmatch(s); m != nil && versionForm.MatchString(m[1]) {
		cure = fmt.Sprintf("EKS has minors only; write %q", m[1])
	}
	v.bad("version", "%.120q is no Kubernetes minor; %s", s, cure)
}

func (v *validator) clusters(c Clusters) {
	for i, side := range []Cluster{c.Blue, c.Green} {
		path := "clusters." + []string{"blue", "green"}[i]
		if !clusterForm.MatchString(side.Name) {
			v.bad(path+".name", "%.120q is no name that EKS gives a cluster", side.Name)
		}
		if side.RoleARN == "" {
			continue
		}
		if a, ok := parseARN(side.RoleARN); !ok || a.service != "iam" || !strings.HasPrefix(a.resource, "role/") {
			v.bad(path+".roleARN", "%.120q is no ARN of a role; write it as arn:aws:iam::111122223333:role/upgrader", side.RoleARN)
		}
	}
	if c.Blue == c.Green {
		v.bad("clusters.green", "blue and green are the same cluster %s; name the other one of the pair", c.Blue.Name)
	}
}

func (v *validator) positive(path string, d Duration) {
	if d <= 0 {
		v.bad(path, "%s is not more than nothing", d)
	}
}

// unique calls check for each item and refuses one that is there twice.
func (v *validator) unique(path string, items []string, check func(path, item string)) {
	for i, item := range items {
		p := fmt.Sprintf("%s[%d]", path, i)
		if slices.Contains(items[:i], item) {
			v.bad(p, "%s is there twice", item)
			continue
		}
		check(p, item)
	}
}

func (v *validator) waivers(waive []Waiver) {
	var names []string
	for _, w := range waive {
		names = append(names, w.Check)
	}
	v.unique("waive", names, func(path, check string) {
		if strings.ContainsAny(check, " *") {
			v.bad(path+".check", "%.120q is no name of one finding; write it as `eksbg plan` prints it", check)
		}
	})
	for i, w := range waive {
		v.blank(fmt.Sprintf("waive[%d].reason", i), w.Reason)
	}
}

func (v *validator) blank(path, s string) {
	if strings.TrimSpace(s) == "" {
		v.bad(path, "say why in a few words")
	}
}

func (v *validator) cutover(c Cutover) {
	if len(c.Stages) == 0 {
		v.bad("cutover.stages", "the list is empty; the last stage is 100")
	}
	for i, s := range c.Stages {
		path := fmt.Sprintf("cutover.stages[%d]", i)
		switch {
		case s < 1 || s > 100:
			v.bad(path, "%d is not from 1 to 100", s)
		case i > 0 && s <= c.Stages[i-1]:
			v.bad(path, "%d does not rise over the %d before it", s, c.Stages[i-1])
		case i == len(c.Stages)-1 && s != 100:
			v.bad(path, "the last stage is %d; it has to be 100", s)
		}
	}
	if c.Hold < 0 {
		v.bad("cutover.hold", "%s is less than nothing", c.Hold)
	}
	v.positive("cutover.patience", c.Patience)
	v.word("cutover.onStop", c.OnStop, onStop)
	for i, g := range c.Gates {
		path := fmt.Sprintf("cutover.gates[%d]", i)
		switch {
		case (g.TargetHealth == nil) == (g.HTTP == nil):
			v.bad(path, "a gate is one of targetHealth and http; begin another list item for the other")
		case g.TargetHealth != nil:
			v.percent(path+".targetHealth.atLeast", g.TargetHealth.AtLeast)
		default:
			v.http(path+".http", g.HTTP)
		}
	}
}

func (v *validator) percent(path string, p Percent) {
	if p <= 0 {
		v.bad(path, "%s lets everything pass; write more than 0%%", p)
	}
}

func (v *validator) http(path string, h *HTTP) {
	u, err := url.Parse(h.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Opaque != "" {
		v.bad(path+".url", "%.120q is no URL to probe; write it as https://api.shop.example.com/healthz", h.URL)
	}
	if h.Expect < 100 || h.Expect > 599 {
		v.bad(path+".expect", "%d is no HTTP status", h.Expect)
	}
	v.percent(path+".success", h.Success)
	if h.Samples < 1 || h.Samples > 1_000_000 {
		v.bad(path+".samples", "%d is not from 1 to 1000000", h.Samples)
	} else if !v.given(path + ".atLeast") {
		h.AtLeast = min(defaultAtLeast, h.Samples)
	}
	if h.AtLeast < 1 || (h.AtLeast > h.Samples && h.Samples >= 1) {
		v.bad(path+".atLeast", "%d is not from 1 to the %d samples", h.AtLeast, h.Samples)
	}
	if h.Over < 0 {
		v.bad(path+".over", "%s is less than nothing", h.Over)
	}
	v.positive(path+".timeout", h.Timeout)
	if h.Resolver != "" && !hostPort(h.Resolver) {
		v.bad(path+".resolver", "%.120q is no DNS server; write host:port, as in 10.0.0.2:53", h.Resolver)
	}
}

func hostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(port, 10, 16)
	return err == nil && perr == nil && host != "" && n > 0
}
