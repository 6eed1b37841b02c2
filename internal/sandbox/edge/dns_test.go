package edge_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/eksbg/eksbg/internal/sandbox/edge"
)

type zones struct {
	sets    map[string][]edge.RecordSet
	alb     map[string]netip.Addr
	healthy map[string]bool
}

func (z zones) Zones() []string {
	var names []string
	for n := range z.sets {
		names = append(names, n)
	}
	return names
}

func (z zones) Lookup(name, typ string) (found []edge.RecordSet) {
	for _, sets := range z.sets {
		for _, s := range sets {
			if s.Name == name && s.Type == typ {
				found = append(found, s)
			}
		}
	}
	return found
}

func (z zones) Exists(name string) bool {
	for _, sets := range z.sets {
		for _, s := range sets {
			if dns.IsSubDomain(name, s.Name) {
				return true
			}
		}
	}
	return false
}

func (z zones) Balancer(name string) ([]netip.Addr, bool, bool) {
	a, ok := z.alb[name]
	return []netip.Addr{a}, z.healthy[name], ok
}

func w(v int64) *int64 { return &v }

func shopZone() zones {
	a := func(id, value string, weight int64) edge.RecordSet {
		return edge.RecordSet{Name: "api.shop.example.com.", Type: "A", SetIdentifier: id, Weight: w(weight), TTL: 20, Values: []string{value}}
	}
	alias := func(id, target string, weight int64) edge.RecordSet {
		return edge.RecordSet{Name: "al.shop.example.com.", Type: "A", SetIdentifier: id, Weight: w(weight), Alias: target, EvaluateHealth: true}
	}
	return zones{
		sets: map[string][]edge.RecordSet{"shop.example.com.": {
			a("blue", "127.77.1.1", 3), a("green", "127.77.1.2", 1),
			alias("blue", "blue.elb.test.", 100), alias("green", "green.elb.test.", 0),
			{Name: "web.shop.example.com.", Type: "A", Alias: "green.elb.test."},
			{Name: "www.shop.example.com.", Type: "CNAME", TTL: 30, Values: []string{"api.shop.example.com."}},
			{Name: "even.shop.example.com.", Type: "A", SetIdentifier: "a", Weight: w(0), TTL: 5, Values: []string{"127.77.1.1"}},
			{Name: "even.shop.example.com.", Type: "A", SetIdentifier: "b", Weight: w(0), TTL: 5, Values: []string{"127.77.1.2"}},
			{Name: "deep.empty.shop.example.com.", Type: "TXT", TTL: 5, Values: []string{`"heritage=external-dns"`}},
		}},
		alb: map[string]netip.Addr{
			"blue.elb.test.":  netip.MustParseAddr("127.77.1.3"),
			"green.elb.test.": netip.MustParseAddr("127.77.1.4"),
		},
		healthy: map[string]bool{"blue.elb.test.": true, "green.elb.test.": true},
	}
}

func serveDNS(t *testing.T, z zones) *edge.DNS {
	t.Helper()
	d, err := edge.StartDNS("127.0.0.1", z)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func ask(t *testing.T, d *edge.DNS, network, name string, qtype uint16) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	c := &dns.Client{Net: network}
	in, _, err := c.Exchange(m, d.Addr())
	if err != nil {
		t.Fatalf("ask for %s: %v", name, err)
	}
	return in
}

// last is the data of the last answer, or the response code.
func last(m *dns.Msg) string {
	if len(m.Answer) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	return dns.Field(m.Answer[len(m.Answer)-1], 1)
}

func TestDNSAnswersByWeight(t *testing.T) {
	z := shopZone()
	d := serveDNS(t, z)
	for name, c := range map[string]struct {
		ask  string
		want string
	}{
		"weights":        {"api.shop.example.com.", "map[127.77.1.1:6 127.77.1.2:2]"},
		"by cname":       {"www.shop.example.com.", "map[127.77.1.1:6 127.77.1.2:2]"},
		"all zero":       {"even.shop.example.com.", "map[127.77.1.1:4 127.77.1.2:4]"},
		"weighted alias": {"al.shop.example.com.", "map[127.77.1.3:8]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]int{}
			for range 8 {
				got[last(ask(t, d, "udp", c.ask, dns.TypeA))]++
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("%s: got %v, want %s", c.ask, got, c.want)
			}
		})
	}
}

func TestDNSAnswersOnce(t *testing.T) {
	d := serveDNS(t, shopZone())
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			ask   string
			qtype uint16
			want  string
			ttl   uint32
		}{
			{"green.elb.test.", dns.TypeA, "127.77.1.4", 60},
			{"web.shop.example.com.", dns.TypeA, "127.77.1.4", 60},
			{"WEB.shop.example.com.", dns.TypeA, "127.77.1.4", 60},
			{"www.shop.example.com.", dns.TypeCNAME, "api.shop.example.com.", 30},
			{"web.shop.example.com.", dns.TypeAAAA, "NOERROR", 0},
			{"shop.example.com.", dns.TypeA, "NOERROR", 0},
			{"empty.shop.example.com.", dns.TypeA, "NOERROR", 0},
			{"deep.empty.shop.example.com.", dns.TypeTXT, "heritage=external-dns", 5},
			{"no.shop.example.com.", dns.TypeA, "NXDOMAIN", 0},
			{"example.org.", dns.TypeA, "NXDOMAIN", 0},
		} {
			m := ask(t, d, network, c.ask, c.qtype)
			if got := last(m); got != c.want {
				t.Errorf("%s %s %s: got %s, want %s", network, c.ask, dns.TypeToString[c.qtype], got, c.want)
			}
			if len(m.Answer) > 0 && m.Answer[0].Header().Ttl != c.ttl {
				t.Errorf("%s %s: TTL %d, want %d", network, c.ask, m.Answer[0].Header().Ttl, c.ttl)
			}
		}
	}
}

// Weight 0 is not off: when all that have a weight are unhealthy, the others answer.
func TestDNSUnhealthyAliasGivesWay(t *testing.T) {
	for _, c := range []struct {
		blue, green bool
		want        string
	}{
		{true, true, "127.77.1.3"},
		{true, false, "127.77.1.3"},
		{false, true, "127.77.1.4"},
		{false, false, "127.77.1.3"},
	} {
		z := shopZone()
		z.healthy["blue.elb.test."], z.healthy["green.elb.test."] = c.blue, c.green
		d := serveDNS(t, z)
		if got := last(ask(t, d, "udp", "al.shop.example.com.", dns.TypeA)); got != c.want {
			t.Errorf("blue healthy %v, green %v: got %s, want %s", c.blue, c.green, got, c.want)
		}
	}
}
