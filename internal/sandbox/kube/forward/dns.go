package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// Resolver looks a name up ("kubernetes.default.svc.cluster.local.", lower case). It
// returns an rcode of dns; the addresses count with dns.RcodeSuccess.
type Resolver func(name string) (rcode int, ips []netip.Addr)

// ServeDNS answers DNS over TCP (RFC 1035, 4.2.2) until the client closes.
func ServeDNS(conn io.ReadWriter, resolve Resolver) error {
	for {
		q, err := readMessage(conn)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out, err := answer(q, resolve).Pack()
		if err != nil {
			return fmt.Errorf("packing a DNS answer: %w", err)
		}
		framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)
		if _, err := conn.Write(framed); err != nil {
			return err
		}
	}
}

func readMessage(r io.Reader) (*dns.Msg, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		return nil, fmt.Errorf("unpacking a DNS question: %w", err)
	}
	return m, nil
}

func answer(q *dns.Msg, resolve Resolver) *dns.Msg {
	a := new(dns.Msg).SetReply(q)
	if len(q.Question) != 1 {
		return a.SetRcode(q, dns.RcodeFormatError)
	}
	name := dns.CanonicalName(q.Question[0].Name)
	rcode, ips := resolve(name)
	a.SetRcode(q, rcode)
	a.Authoritative = true
	if rcode != dns.RcodeSuccess {
		return a
	}
	for _, ip := range ips {
		hdr := dns.RR_Header{Name: q.Question[0].Name, Class: dns.ClassINET, Ttl: 5}
		switch t := q.Question[0].Qtype; {
		case t == dns.TypeA && ip.Is4():
			hdr.Rrtype = dns.TypeA
			a.Answer = append(a.Answer, &dns.A{Hdr: hdr, A: net.IP(ip.AsSlice())})
		case t == dns.TypeAAAA && ip.Is6():
			hdr.Rrtype = dns.TypeAAAA
			a.Answer = append(a.Answer, &dns.AAAA{Hdr: hdr, AAAA: net.IP(ip.AsSlice())})
		}
	}
	return a
}
