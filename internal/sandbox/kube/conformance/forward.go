package conformance

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	transport "k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

var forwardChecks = []check{
	{name: "Portforward", run: forwards},
}

// forwards: port 53 of a CoreDNS pod answers DNS over TCP through the API server, by SPDY
// and by websocket; a port that nobody listens on is refused in words.
func forwards(c *Case) {
	must(c.cs.AppsV1().Deployments(c.ns).Create(c.ctx, deployment("coredns", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Labels["k8s-app"] = "kube-dns"
	}), metav1.CreateOptions{}))(c)
	pod := c.awaitPods("app=coredns", "are ready", whole(1))[0]
	for how, dial := range map[string]func(*Case, string) (httpstream.Connection, error){"SPDY": dialSPDY, "websocket": dialWebsocket} {
		conn, err := dial(c, pod.Name)
		if err != nil {
			c.Fatalf("%s: %v", how, err)
		}
		q := new(dns.Msg).SetQuestion("kubernetes.default.svc.cluster.local.", dns.TypeA)
		a, said := c.ask(conn, "1", 53, q)
		if a == nil || a.Rcode != dns.RcodeSuccess || len(a.Answer) != 1 {
			c.Errorf("%s: CoreDNS answers %v %s", how, a, said)
		}
		q = new(dns.Msg).SetQuestion("none.default.svc.cluster.local.", dns.TypeA)
		if a, said := c.ask(conn, "2", 53, q); a == nil || a.Rcode != dns.RcodeNameError {
			c.Errorf("%s: for a name that is not there CoreDNS answers %v %s", how, a, said)
		}
		if a, said := c.ask(conn, "3", 54, q); a != nil || !strings.Contains(said, "refused") {
			c.Errorf("%s: port 54 answers %v %q", how, a, said)
		}
		_ = conn.Close() // a check that ends
	}
}

func (c *Case) forwardURL(pod string) *rest.Request {
	return c.cs.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.ns).Name(pod).SubResource("portforward")
}

func dialSPDY(c *Case, pod string) (httpstream.Connection, error) {
	tripper, upgrader, err := transport.RoundTripperFor(c.Config)
	if err != nil {
		return nil, err
	}
	req := must(httpRequest("POST", c.forwardURL(pod).URL().String()))(c)
	conn, _, err := transport.NegotiateStreaming(upgrader, newClient(tripper), req, portforward.PortForwardProtocolV1Name)
	return conn, err
}

func dialWebsocket(c *Case, pod string) (httpstream.Connection, error) {
	d, err := portforward.NewSPDYOverWebsocketDialerForStreaming(c.forwardURL(pod).URL(), c.Config)
	if err != nil {
		return nil, err
	}
	conn, _, err := d.Dial(portforward.PortForwardProtocolV1Name)
	return conn, err
}

// ask opens one forwarded connection, sends a question, and returns the answer or what
// the error stream said.
func (c *Case) ask(conn httpstream.Connection, id string, port int, q *dns.Msg) (*dns.Msg, string) {
	c.Helper()
	h := map[string][]string{corev1.PortHeader: {fmt.Sprint(port)}, corev1.PortForwardRequestIDHeader: {id}, corev1.StreamType: {corev1.StreamTypeError}}
	errs := must(conn.CreateStream(h))(c)
	_ = errs.Close() // nothing is written to it
	h[corev1.StreamType] = []string{corev1.StreamTypeData}
	data := must(conn.CreateStream(h))(c)
	said := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(errs) // ends with the connection
		said <- string(b)
	}()
	end := time.AfterFunc(c.Patience, func() { _ = conn.Close() })
	defer end.Stop()
	dc := &dns.Conn{Conn: &streamConn{Stream: data}}
	if err := dc.WriteMsg(q); err != nil {
		return nil, err.Error()
	}
	a, err := dc.ReadMsg()
	_ = data.Close()
	if err != nil {
		return nil, <-said
	}
	return a, ""
}

// streamConn makes a net.Conn of a stream.
type streamConn struct {
	httpstream.Stream
	net.Conn
}

func (s *streamConn) Read(p []byte) (int, error)  { return s.Stream.Read(p) }
func (s *streamConn) Write(p []byte) (int, error) { return s.Stream.Write(p) }
func (s *streamConn) Close() error                { return s.Stream.Close() }
