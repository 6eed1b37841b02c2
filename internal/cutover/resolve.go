package cutover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/miekg/dns"
)

// dialer connects for one sample.
type dialer struct {
	resolver string
	// turn is the number of the sample: it goes through values and addresses in turn.
	turn int
}

// turns connects to the value whose turn it is. A value whose address family is not
// reachable from here (IPv6 on a host without) gives its turn to the next.
func (d dialer) turns(ctx context.Context, values []string, port string) (net.Conn, error) {
	var last error
	for k := range values {
		conn, err := d.one(ctx, values[(d.turn+k)%len(values)], port)
		if !errors.Is(err, errUnreachable) {
			return conn, err
		}
		last = err
	}
	return nil, last
}

// one resolves a name anew and connects to one of its addresses.
func (d dialer) one(ctx context.Context, host, port string) (net.Conn, error) {
	addrs := []string{host}
	if net.ParseIP(host) == nil {
		var err error
		if addrs, err = d.resolve(ctx, host); err != nil {
			return nil, err
		}
	}
	var last error
	for k := range addrs {
		addr := addrs[(d.turn+k)%len(addrs)]
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(addr, port))
		if err == nil {
			return conn, nil
		}
		if !familyMissing(addr, err) {
			return nil, err
		}
		last = fmt.Errorf("%w: %w", errUnreachable, err)
	}
	return nil, last
}

// familyMissing tells whether an IPv6 address failed because this host has no way to
// IPv6 at all.
func familyMissing(addr string, err error) bool {
	ip := net.ParseIP(addr)
	if ip == nil || ip.To4() != nil {
		return false
	}
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// errNoAnswer says that the resolver had no address for a name.
var errNoAnswer = errors.New("no address")

// resolve asks for the addresses of a name; nothing is cached.
func (d dialer) resolve(ctx context.Context, host string) ([]string, error) {
	if d.resolver == "" {
		return (&net.Resolver{PreferGo: true}).LookupHost(ctx, host)
	}
	var out []string
	var failed error
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		addrs, err := d.ask(ctx, host, qtype)
		if err != nil {
			failed = err
			continue
		}
		out = append(out, addrs...)
	}
	if len(out) > 0 {
		return out, nil
	}
	if failed != nil {
		return nil, failed
	}
	return nil, fmt.Errorf("%w for %s at %s", errNoAnswer, host, d.resolver)
}

// Bounds of one name resolution: lost datagrams are asked for again, and a chain of
// CNAMEs that the resolver leaves to its clients is followed.
const (
	maxQueries = 3
	maxChain   = 8
)

// ask finds the addresses of one type, along CNAMEs that lead out of the answer.
func (d dialer) ask(ctx context.Context, host string, qtype uint16) ([]string, error) {
	name := dns.Fqdn(host)
	for range maxChain {
		in, err := d.query(ctx, name, qtype)
		if err != nil {
			return nil, err
		}
		var out []string
		next := ""
		for _, rr := range in.Answer {
			switch rr := rr.(type) {
			case *dns.A:
				out = append(out, rr.A.String())
			case *dns.AAAA:
				out = append(out, rr.AAAA.String())
			case *dns.CNAME:
				next = rr.Target
			}
		}
		if len(out) > 0 || next == "" {
			return out, nil
		}
		name = next
	}
	return nil, fmt.Errorf("%w: the CNAMEs of %s do not end", errNoAnswer, host)
}

// query makes one query, over TCP again when the answer did not fit.
func (d dialer) query(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	var in *dns.Msg
	var err error
	for range maxQueries {
		in, _, err = (&dns.Client{}).ExchangeContext(ctx, q, d.resolver)
		if err == nil && in.Truncated {
			in, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, q, d.resolver)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	if in.Rcode != dns.RcodeSuccess {
		return nil, fmt.Errorf("%w: %s says %s", errNoAnswer, d.resolver, dns.RcodeToString[in.Rcode])
	}
	return in, nil
}
