package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// RecordSet is one resource record set as the authoritative servers have it: in
// sync, not merely accepted.
type RecordSet struct {
	Name string
	Type string
	// SetIdentifier and Weight are those of a weighted set; Weight is nil for a simple one.
	SetIdentifier string
	Weight        *int64
	TTL           uint32
	Values        []string
	// Alias is the DNS name that an alias set points to.
	Alias string
	// EvaluateHealth makes an unhealthy alias target count as away.
	EvaluateHealth bool
}

// Source is what the DNS server answers from. Names are absolute ("example.com.")
// and in lower case.
type Source interface {
	// Zones lists the names of the hosted zones.
	Zones() []string
	// Lookup lists the sets of a name and type that the servers have now: one, or all
	// members where they are weighted.
	Lookup(name, typ string) []RecordSet
	// Exists tells a name without records of a type from one that is not there.
	Exists(name string) bool
	// Balancer finds a load balancer by its DNS name: its addresses, and whether it
	// counts as healthy for an alias that evaluates that.
	Balancer(name string) (addrs []netip.Addr, healthy, ok bool)
}

// aliasTTL is how long an answer for a load balancer may be kept, in seconds
// (Route 53 guide, "Choosing between alias and non-alias records").
const aliasTTL = 60

// DNS answers for the zones of a Source over UDP and TCP on one loopback port.
type DNS struct {
	source Source
	picks  *picker
	addr   string
	udp    *dns.Server
	tcp    *dns.Server
	done   sync.WaitGroup
}

// StartDNS listens on a free port of host, UDP and TCP alike, and answers until Close.
func StartDNS(host string, source Source) (*DNS, error) {
	d := &DNS{source: source, picks: newPicker()}
	packets, listener, err := listenDNS(host)
	if err != nil {
		return nil, err
	}
	d.addr = listener.Addr().String()
	handler := dns.HandlerFunc(d.serve)
	var started sync.WaitGroup
	started.Add(2)
	d.udp = &dns.Server{PacketConn: packets, Handler: handler, NotifyStartedFunc: started.Done}
	d.tcp = &dns.Server{Listener: listener, Handler: handler, NotifyStartedFunc: started.Done}
	for _, s := range []*dns.Server{d.udp, d.tcp} {
		d.done.Go(func() { _ = s.ActivateAndServe() }) // ends when Close shuts it down
	}
	// A server that is shut down before it has started would go on for ever.
	started.Wait()
	return d, nil
}

func listenDNS(host string) (net.PacketConn, net.Listener, error) {
	var last error
	for range 20 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, nil, fmt.Errorf("listen for DNS: %w", err)
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return p, l, nil
		}
		last = err
		_ = l.Close() // another port is tried
	}
	return nil, nil, fmt.Errorf("listen for DNS: %w", last)
}

// Addr is host:port of the server.
func (d *DNS) Addr() string { return d.addr }

// Close stops answering.
func (d *DNS) Close() error {
	err := errors.Join(d.udp.Shutdown(), d.tcp.Shutdown())
	d.done.Wait()
	if err != nil {
		return fmt.Errorf("stop DNS: %w", err)
	}
	return nil
}

func (d *DNS) serve(w dns.ResponseWriter, req *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(req)
	m.Authoritative = true
	if req.Opcode != dns.OpcodeQuery || len(req.Question) != 1 {
		m.SetRcode(req, dns.RcodeNotImplemented)
	} else {
		q := req.Question[0]
		d.resolve(m, dns.CanonicalName(q.Name), q.Qtype, 0)
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		size := dns.MinMsgSize
		if opt := req.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		m.Truncate(size)
	}
	_ = w.WriteMsg(m) // the client asks again
}

// maxChase bounds chains of CNAMEs and aliases within the zones.
const maxChase = 8

// resolve answers one name, following CNAMEs and aliases as far as the zones go.
func (d *DNS) resolve(m *dns.Msg, name string, qtype uint16, depth int) {
	if depth > maxChase {
		m.Rcode = dns.RcodeServerFailure
		return
	}
	if addrs, _, ok := d.source.Balancer(name); ok {
		m.Answer = append(m.Answer, addressRecords(name, qtype, addrs)...)
		return
	}
	zone := d.zoneOf(name)
	if zone == "" {
		if depth == 0 {
			m.Rcode = dns.RcodeNameError
		}
		return
	}
	set, ok := d.choose(name, qtype)
	if !ok && qtype != dns.TypeCNAME {
		set, ok = d.choose(name, dns.TypeCNAME)
	}
	switch {
	case !ok && name != zone && !d.source.Exists(name):
		m.Rcode = dns.RcodeNameError
		m.Ns = append(m.Ns, soa(zone))
	case !ok:
		m.Ns = append(m.Ns, soa(zone))
	case set.Alias != "":
		d.alias(m, name, set, qtype, depth)
	default:
		d.values(m, name, set, qtype, depth)
	}
}

// alias answers with the records of the set's target under the name asked for.
func (d *DNS) alias(m *dns.Msg, name string, set RecordSet, qtype uint16, depth int) {
	target := dns.CanonicalName(set.Alias)
	if addrs, _, ok := d.source.Balancer(target); ok {
		m.Answer = append(m.Answer, addressRecords(name, qtype, addrs)...)
		return
	}
	sub := new(dns.Msg)
	d.resolve(sub, target, qtype, depth+1)
	for _, rr := range sub.Answer {
		rr.Header().Name = name
		m.Answer = append(m.Answer, rr)
	}
}

func (d *DNS) values(m *dns.Msg, name string, set RecordSet, qtype uint16, depth int) {
	for _, v := range set.Values {
		rr, err := dns.NewRR(fmt.Sprintf("%s %d IN %s %s", name, set.TTL, set.Type, v))
		if err != nil || rr == nil {
			m.Rcode = dns.RcodeServerFailure
			return
		}
		m.Answer = append(m.Answer, rr)
	}
	if set.Type == "CNAME" && qtype != dns.TypeCNAME && len(set.Values) == 1 {
		d.resolve(m, dns.CanonicalName(set.Values[0]), qtype, depth+1)
	}
}

// zoneOf returns the most specific zone that holds a name.
func (d *DNS) zoneOf(name string) string {
	best := ""
	for _, z := range d.source.Zones() {
		if dns.IsSubDomain(z, name) && len(z) > len(best) {
			best = z
		}
	}
	return best
}

// choose picks the one set of a type that answers this time. Of weighted sets, those
// whose target is unhealthy only count when every other with a weight is unhealthy
// too; when all weights are zero, all are served equally (Route 53 API,
// ResourceRecordSet, Weight; guide, "How Route 53 chooses records").
func (d *DNS) choose(name string, qtype uint16) (RecordSet, bool) {
	typ := dns.TypeToString[qtype]
	of := d.source.Lookup(name, typ)
	if len(of) == 0 {
		return RecordSet{}, false
	}
	if of[0].Weight == nil {
		return of[0], true
	}
	choices := d.weights(of)
	if i := d.picks.pick("dns "+name+" "+typ, choices); i >= 0 {
		return of[i], true
	}
	return RecordSet{}, false
}

func (d *DNS) weights(of []RecordSet) []weighted {
	var sum, healthySum int64
	healthy := make([]bool, len(of))
	anyHealthy := false
	for i, s := range of {
		healthy[i] = d.healthy(s)
		anyHealthy = anyHealthy || healthy[i]
		sum += *s.Weight
		if healthy[i] {
			healthySum += *s.Weight
		}
	}
	choices := make([]weighted, len(of))
	for i, s := range of {
		w := *s.Weight
		switch {
		case sum == 0:
			w = 1
		case healthySum > 0 && !healthy[i]:
			w = 0
		case healthySum == 0 && anyHealthy:
			// Everything with a weight is unhealthy: the zero-weight ones answer.
			w = 0
			if healthy[i] {
				w = 1
			}
		}
		choices[i] = weighted{key: s.SetIdentifier, weight: w}
	}
	return choices
}

func (d *DNS) healthy(s RecordSet) bool {
	if s.Alias == "" || !s.EvaluateHealth {
		return true
	}
	_, healthy, ok := d.source.Balancer(dns.CanonicalName(s.Alias))
	return !ok || healthy
}

func addressRecords(name string, qtype uint16, addrs []netip.Addr) []dns.RR {
	var rrs []dns.RR
	for _, a := range addrs {
		switch {
		case qtype == dns.TypeA && a.Is4():
			rrs = append(rrs, &dns.A{Hdr: header(name, dns.TypeA), A: a.AsSlice()})
		case qtype == dns.TypeAAAA && a.Is6():
			rrs = append(rrs, &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: a.AsSlice()})
		}
	}
	return rrs
}

func header(name string, typ uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: typ, Class: dns.ClassINET, Ttl: aliasTTL}
}

// soa is the record that negative answers carry; Route 53 gives every zone one.
func soa(zone string) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 900},
		Ns:  "ns-1." + strings.TrimSuffix(zone, ".") + ".", Mbox: "awsdns-hostmaster.amazon.com.",
		Serial: 1, Refresh: 7200, Retry: 900, Expire: 1209600, Minttl: 86400,
	}
}
