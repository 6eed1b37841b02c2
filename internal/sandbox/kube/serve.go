package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// authority is the cluster's own certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// validity is how long certificates last; a sandbox lasts minutes.
const validity = 7 * 24 * time.Hour

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the CA's key: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "kubernetes " + name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making the CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the CA: %w", err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return big.NewInt(time.Now().UnixNano())
	}
	return n
}

// issue makes a server certificate for loopback and the address of l.
func (a *authority) issue(l net.Listener) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if t, ok := l.Addr().(*net.TCPAddr); ok && !t.IP.IsUnspecified() {
		tmpl.IPAddresses = append(tmpl.IPAddresses, t.IP)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}, nil
}

// CA is the certificate of the cluster's own authority, PEM.
func (c *Cluster) CA() []byte { return c.ca.pem }

// Serve serves TLS (HTTP/1.1 and 2) on l, with a certificate of the cluster's CA, until
// Close; it closes l and returns nil then. h is the handler around the cluster (faults,
// log); nil serves the cluster itself.
func (c *Cluster) Serve(l net.Listener, h http.Handler) error {
	if h == nil {
		h = c
	}
	cert, err := c.ca.issue(l)
	if err != nil {
		return fmt.Errorf("kube: certificate of cluster %s: %w", c.opts.Name, err)
	}
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 30 * time.Second, ConnContext: wire.ConnContext,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), // clients that hang up are no news
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return l.Close()
	}
	c.servers = append(c.servers, s)
	c.mu.Unlock()
	if err := s.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("kube: serving cluster %s: %w", c.opts.Name, err)
	}
	return nil
}
