package planfile_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/planfile"
)

// whole is a plan file with every field in it.
func whole(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mistakes are edits of testdata/whole.yaml: every old text is there once and becomes
// the new one. Names are what the golden file calls them.
var mistakes = []struct {
	name  string
	edits []string // old, new, old, new, …
}{
	{"unknown field", []string{"  maxParallel: 4", "  maxParalel: 4"}},
	{"unknown field at the top", []string{"capacity: check", "settle: {former: upgrade}"}},
	{"unknown field in another case", []string{"zoneID: Z0AB", "zoneId: Z0AB"}},
	{"unknown field in a flow mapping", []string{"reason: \"old", "because: \"old"}},
	{"duplicate field", []string{"  polling: 30s", "  polling: 30s\n  addons: keep"}},
	{"key that is no text", []string{"  polling: 30s", "  7: 30s"}},
	{"missing fields", []string{"name: shop\n", "", "{setIdentifier: green}", "{}"}},
	{"missing below a list item", []string{", until: 2026-12-04}\n\nup", "}\n\nup"}},
	{"no value", []string{"name: shop\n", "name:\n"}},
	{"no value of a mapping", []string{"  polling: 30s", "", "  addons: required", ""}},
	{"text where fields should be", []string{"  blue:  {name: shop-blue, profile: shop-blue}", "  blue: shop-blue"}},
	{"text where a list should be", []string{"[A, AAAA]", "A"}},
	{"list where text should be", []string{"name: shop\n", "name: [shop]\n"}},
	{"number where text should be", []string{"name: shop\n", "name: 4711\n"}},
	{"truth value where text should be", []string{"name: shop\n", "name: true\n"}},
	{"text where a number should be", []string{"maxParallel: 4", "maxParallel: four"}},
	{"fraction where a number should be", []string{"maxParallel: 4", "maxParallel: 4.5"}},
	{"octal number", []string{"maxParallel: 4", "maxParallel: 010"}},
	{"huge number", []string{"maxParallel: 4", "maxParallel: 99999999999999999999999"}},
	{"fields where a duration should be", []string{"polling: 30s", "polling: {s: 30}"}},
	{"several lines of text", []string{"capacity: check", "capacity: |\n  check\n  match"}},
	{"empty text", []string{"region: ap-northeast-1", "region: \"\""}},
	{"control character", []string{"name: shop\n", "name: \"sh\\u001b[2Jop\"\n"}},

	{"version without quotes", []string{`version: "1.33"`, "version: 1.30"}},
	{"version with a v", []string{`"1.33"`, "v1.33"}},
	{"version with a patch", []string{`"1.33"`, `"1.33.4"`}},
	{"version of nothing", []string{`"1.33"`, `latest`}},
	{"duration without unit", []string{"hold: 5m", "hold: 300"}},
	{"duration of nothing", []string{"hold: 5m", "hold: soon"}},
	{"negative duration", []string{"hold: 5m", "hold: -5m"}},
	{"zero duration", []string{"polling: 30s", "polling: 0s"}},
	{"percentage of nothing", []string{"success: 99.9%", "success: most"}},
	{"percentage over 100", []string{"success: 99.9%", "success: 101%"}},
	{"percentage of zero", []string{"{atLeast: 100%}", "{atLeast: 0}"}},
	{"date of nothing", []string{"until: 2026-12-05", "until: Friday"}},
	{"date of no calendar", []string{"until: 2026-12-05", "until: 2026-02-30"}},

	{"other api", []string{"eksbg.dev/v1", "eksbg.dev/v2"}},
	{"other kind", []string{"UpgradePlan", "UpgradePlans"}},
	{"variant for later", []string{"variant: hot", "variant: warm"}},
	{"variant of nothing", []string{"variant: hot", "variant: hto"}},
	{"capacity for later", []string{"capacity: check", "capacity: match"}},
	{"add-ons for later", []string{"addons: required", "addons: latest"}},
	{"approval for later", []string{"approvals: [cutover", "approvals: [settle"}},
	{"approval of nothing", []string{"approvals: [cutover", "approvals: [cutovers"}},
	{"approval twice", []string{"approvals: [cutover", "approvals: [restart-live, cutover"}},
	{"name for no journal", []string{"name: shop\n", "name: ../shop\n"}},
	{"region of nothing", []string{"region: ap-northeast-1", "region: tokyo"}},
	{"the same cluster twice", []string{"{name: shop-green, profile: shop-green, roleARN: \"arn:aws:iam::111122223333:role/upgrader\"}", "{name: shop-blue, profile: shop-blue}"}},
	{"cluster name", []string{"{name: shop-blue, ", "{name: shop.blue, "}},
	{"role", []string{":role/upgrader", ":user/upgrader"}},
	{"waiver without reason", []string{"old client retires on Friday", " "}},
	{"waiver for all", []string{"check: insight/deprecated-apis", "check: insight/*"}},
	{"waiver twice", []string{"\n\nupgrade:", "\n  - {check: insight/deprecated-apis, reason: again, until: 2026-12-06}\n\nupgrade:"}},
	{"skip of no owner", []string{"shop/Job/nightly-report", "nightly-report"}},
	{"no workload at once", []string{"maxParallel: 4", "maxParallel: 0"}},
	{"order", []string{"[kube-system, platform]", "[kube-system, Platform, kube-system]"}},
	{"pending of nothing", []string{"pending: 5m", "pending: 0s"}},
	{"negative job timeout", []string{"jobTimeout: 1h", "jobTimeout: -1h"}},
	{"negative age", []string{"finishedAge: 2h", "finishedAge: -2h"}},
	{"cron jobs", []string{"cronJobs: suspend", "cronJobs: suspended"}},
	{"finished jobs", []string{"finishedJobs: delete", "finishedJobs: remove"}},
	{"resolve without a domain", []string{"resolve: kubernetes.default.svc.cluster.local", "resolve: kubernetes"}},
	{"resolve of an address", []string{"resolve: kubernetes.default.svc.cluster.local", "resolve: https://kubernetes.default"}},
	{"resolve of an IP address", []string{"resolve: kubernetes.default.svc.cluster.local", "resolve: 10.0.0.1"}},
	{"resolve of no", []string{"resolve: kubernetes.default.svc.cluster.local", "resolve: false"}},
	{"allow of nothing", []string{"action: evict", "action: delete"}},
	{"allow of no owner", []string{"owner: shop/StatefulSet/ledger", "owner: StatefulSet/ledger"}},
	{"allow of a lower kind", []string{"owner: shop/StatefulSet/ledger", "owner: shop/statefulset/ledger"}},
	{"allow without reason", []string{"agreed with the shop team", " "}},
	{"allow twice", []string{"owner: shop/Deployment/legacy-cart, action: outage", "owner: shop/StatefulSet/ledger, action: evict"}},
	{"evict of a bare pod", []string{"action: recreate", "action: evict"}},
	{"outage of a bare pod", []string{"action: recreate", "action: outage"}},
	{"recreate of a deployment", []string{"action: outage", "action: recreate"}},
	{"evict of a job", []string{"owner: shop/StatefulSet/ledger", "owner: shop/Job/ledger"}},
	{"outage of a daemon set", []string{"owner: shop/Deployment/legacy-cart", "owner: shop/DaemonSet/logs"}},
	{"skip of no node", []string{"shop/Job/nightly-report", "Node/"}},

	{"fields of the other kind", []string{"  - route53:", "  - alb:\n      listener: x", "Z0AB", "Z0ab"}},
	{"zone id", []string{"zoneID: Z0AB", "zoneID: /hostedzone/Z0AB"}},
	{"no zone", []string{"      zone: shop.example.com\n      zoneID: Z0ABCDEF\n", ""}},
	{"record of another zone", []string{"record: api.shop", "record: api.shopping"}},
	{"wildcard", []string{"record: api.shop.example.com", "record: \"*.shop.example.com\""}},
	{"types", []string{"[A, AAAA]", "[A, CNAME, TXT, A]"}},
	{"cname of the zone", []string{"record: api.", "record: ", "[A, AAAA]", "[CNAME]"}},
	{"the same record set", []string{"{setIdentifier: green}", "{setIdentifier: blue}"}},
	{"listener and rule", []string{"      listener:", "      rule: \"arn:aws:elasticloadbalancing:ap-northeast-1:111122223333:listener-rule/app/shop/50dc6c495c0c9188/f2f7dc8efc522ab2/9683b2d02a6cabee\"\n      listener:"}},
	{"listener of a network load balancer", []string{"listener/app/", "listener/net/"}},
	{"listener of another region", []string{"ap-northeast-1:111122223333:listener/app", "us-east-1:111122223333:listener/app"}},
	{"target group", []string{"targetgroup/shop-blue/73e2d6bc24d8a067", "targetgroup/shop-blue"}},
	{"the same target group", []string{"targetgroup/shop-green/943f017f100becff", "targetgroup/shop-blue/73e2d6bc24d8a067"}},
	{"the same target twice", []string{"\ncutover:", "  - alb:\n      listener: \"arn:aws:elasticloadbalancing:ap-northeast-1:111122223333:listener/app/shop/50dc6c495c0c9188/f2f7dc8efc522ab2\"\n      blue:  {targetGroup: \"arn:aws:elasticloadbalancing:ap-northeast-1:111122223333:targetgroup/a/73e2d6bc24d8a067\"}\n      green: {targetGroup: \"arn:aws:elasticloadbalancing:ap-northeast-1:111122223333:targetgroup/b/943f017f100becff\"}\n\ncutover:"}},
	{"two kinds in one target", []string{"  - alb:", "    alb:"}},

	{"no stage", []string{"[10, 50, 100]", "[]"}},
	{"stages that fall", []string{"[10, 50, 100]", "[50, 10, 100]"}},
	{"stages that end early", []string{"[10, 50, 100]", "[10, 50]"}},
	{"stage out of range", []string{"[10, 50, 100]", "[0, 50, 101]"}},
	{"on stop", []string{"onStop: back", "onStop: bck"}},
	{"gate of two kinds", []string{"    - http:", "      http:"}},
	{"gate of no kind", []string{"    - targetHealth: {atLeast: 100%}", "    - {}"}},
	{"url", []string{"https://api.shop.example.com/healthz", "api.shop.example.com/healthz"}},
	{"http numbers", []string{"expect: 200", "expect: 20", "samples: 2000", "samples: 0", "timeout: 5s", "timeout: 0s"}},
	{"more answers than samples", []string{"atLeast: 20,", "atLeast: 2001,"}},
	{"resolver", []string{"10.0.0.2:53", "10.0.0.2"}},

	{"broken yaml", []string{"[10, 50, 100]", "[10, 50, 100"}},
	{"tab", []string{"  maxParallel", "\tmaxParallel"}},
	{"second document", []string{"\ncutover:", "---\ncutover:"}},
	{"tag", []string{"name: shop\n", "name: !!str shop\n"}},
	{"unknown alias", []string{"[kube-system, platform]", "*order"}},
	{"alias of a later anchor", []string{"{setIdentifier: blue}", "*id", "{setIdentifier: green}", "&id {setIdentifier: green}"}},
	{"alias within its own anchor", []string{"[kube-system, platform]", "&o [kube-system, *o]"}},
	{"merge of itself", []string{"{setIdentifier: blue}", "&m {<<: *m, setIdentifier: blue}"}},
	{"merge of text", []string{"[kube-system, platform]", "[&ns kube-system]", "{setIdentifier: blue}", "{<<: *ns, setIdentifier: blue}"}},
	{"anchor twice", []string{"{setIdentifier: blue}", "&m {setIdentifier: blue}", "{setIdentifier: green}", "&m {setIdentifier: green}"}},
	{"long line", []string{"capacity: check", "capacity: " + strings.Repeat("check", 60)}},
}

func TestMistakes(t *testing.T) {
	base := whole(t)
	var out strings.Builder
	show := func(name, content string) {
		_, err := planfile.Parse("shop.yaml", []byte(content))
		var at *planfile.Error
		if !errors.As(err, &at) {
			t.Errorf("%s: got %v, want a mistake with its place", name, err)
			return
		}
		fmt.Fprintf(&out, "=== %s\n%v\n", name, err)
	}
	for _, m := range mistakes {
		content := base
		for i := 0; i < len(m.edits); i += 2 {
			if n := strings.Count(content, m.edits[i]); n != 1 {
				t.Fatalf("%s: %q is there %d times", m.name, m.edits[i], n)
			}
			content = strings.Replace(content, m.edits[i], m.edits[i+1], 1)
		}
		show(m.name, content)
	}
	for _, m := range []struct{ name, content string }{
		{"empty file", ""},
		{"only a comment", "# later\n"},
		{"no traffic", base[:strings.Index(base, "traffic:")] + "traffic: []\n"},
		{"tab and byte order mark", "\uFEFFnam:\tshop\n"},
		{"a list", "- a\n"},
		{"text", "shop\n"},
		{"a saved plan", `{"seq":1,"kind":"plan"}`},
		{"not utf-8", "name: shop\nregion: \xff\n"},
		{"too large", "name: " + strings.Repeat("x", 70000)},
		{"deep in brackets", "a: " + strings.Repeat("[", 60000)},
		{"deep in entries", strings.Repeat("- ", 30000)},
		{"bomb", bomb()},
		{"bomb of merges", "clusters:\n  green: {name: green}\n  blue: &m {<<: [" + strings.Repeat("*m,", 8000) + "]}\n"},
		{"many mistakes", strings.Repeat("a: 1\nb: 2\nc: 3\n", 50)},
	} {
		show(m.name, m.content)
	}
	golden(t, "testdata/mistakes.golden", []byte(out.String()))
}

// bomb is small and would be tens of millions of values if its aliases were followed.
func bomb() string {
	return "waive:\n- &w {check: a, reason: b, until: 2026-01-01}\nrestart: {order: &o [" + strings.Repeat("a,", 10000) + "]}\n" +
		"approvals: *o\ntraffic:\n" + strings.Repeat("- route53: {types: *o}\n", 1500)
}
