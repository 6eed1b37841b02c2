package restart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/miekg/dns"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/state"
)

// resolveOff asks no CoreDNS pod anything.
const resolveOff = "off"

// The port on which CoreDNS answers, and how long one question may take.
const (
	dnsPort    = 53
	dnsTimeout = 5 * time.Second
)

// resolving tells whether every CoreDNS pod on a current kubelet resolves the name; true
// for everything that is not CoreDNS. It asks each pod once,
// again while one gives no good answer, and stops when that lasts.
func (c *campaign) resolving(ctx context.Context, w *work) (bool, error) {
	if !isCoreDNS(w.item.Owner) || c.Resolve == "" || c.Resolve == resolveOff || c.Dial == nil {
		return true, nil
	}
	if w.answers == nil {
		w.answers = map[string]bool{}
	}
	for _, p := range w.view.Pods {
		if p.Place != current || p.Terminating || w.answers[p.UID] {
			continue
		}
		err := c.ask(ctx, w.item.Owner.Namespace, p.Name)
		if err == nil {
			w.answers[p.UID], w.dumb = true, time.Time{}
			continue
		}
		if ctx.Err() != nil {
			return false, interrupted(ctx)
		}
		return false, c.unresolved(w, p, err)
	}
	return true, nil
}

// unresolved stops when a pod does not resolve the name for longer than Grace.
func (c *campaign) unresolved(w *work, p podView, err error) error {
	now, why := c.Clock.Now(), fmt.Sprintf("pod %s does not resolve %s: %s", p.Name, c.Resolve, state.Clean(err.Error()))
	off := "or set restart.resolve: off in the plan file; then run the same command again"
	if apierrors.IsForbidden(err) {
		return c.stop(w, state.ExitBlocked, fmt.Sprintf("whether pod %s resolves %s cannot be asked: %s", p.Name, c.Resolve, state.Clean(err.Error())),
			"allow eksbg to create pods/portforward in namespace "+w.item.Owner.Namespace+",\n"+off)
	}
	if w.dumb.IsZero() {
		w.dumb = now
	}
	if now.Sub(w.dumb) < c.Grace {
		w.refused, w.retry = why, now.Add(min(firstPause, c.Grace))
		return nil
	}
	code := state.ExitResumable
	if bad := (*badAnswer)(nil); errors.As(err, &bad) {
		code = state.ExitBlocked
	}
	return c.stop(w, code, why, "look at its log (kubectl logs -n "+w.item.Owner.Namespace+" "+p.Name+") and configuration,\n"+off)
}

// badAnswer is an answer of a DNS server that is no address.
type badAnswer struct{ text string }

func (e *badAnswer) Error() string { return e.text }

// ask asks one pod for the addresses of the name, over TCP.
func (c *campaign) ask(ctx context.Context, namespace, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	conn, err := c.Dial(ctx, namespace, pod, dnsPort)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it was only read from
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return fmt.Errorf("bound the question: %w", err)
		}
	}
	return resolve(conn, c.Resolve)
}

// resolve asks for A and then AAAA records of the name; either will do.
func resolve(conn net.Conn, name string) error {
	dc := &dns.Conn{Conn: conn, TsigSecret: nil}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		q := new(dns.Msg)
		q.SetQuestion(dns.Fqdn(name), kind)
		if err := dc.WriteMsg(q); err != nil {
			return fmt.Errorf("ask for %s: %w", name, err)
		}
		a, err := dc.ReadMsg()
		switch {
		case err != nil:
			return fmt.Errorf("read the answer for %s: %w", name, err)
		case a.Id != q.Id:
			return &badAnswer{"the answer is to another question"}
		case a.Rcode != dns.RcodeSuccess:
			return &badAnswer{dns.RcodeToString[a.Rcode]}
		}
		for _, rr := range a.Answer {
			switch rr.(type) {
			case *dns.A, *dns.AAAA:
				return nil
			}
		}
	}
	return &badAnswer{"NOERROR without an address"}
}
