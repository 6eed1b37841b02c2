package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long certificates last; a test lasts minutes.
const validity = 24 * time.Hour

// Authority is a certificate authority of one cluster.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// Pair is a certificate and its key, PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority makes an authority with a key of its own.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA %s: %w", name, err)
	}
	tmpl := template(pkix.Name{CommonName: name})
	tmpl.KeyUsage, tmpl.IsCA, tmpl.BasicConstraintsValid = x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, true, true
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make the CA %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the CA %s: %w", name, err)
	}
	return &Authority{cert, key, block("CERTIFICATE", der)}, nil
}

// PEM is the certificate that vouches for what the authority issues.
func (a *Authority) PEM() []byte { return a.pem }

// Server issues a certificate for loopback and the in-cluster names of an API server.
func (a *Authority) Server(name string) (Pair, error) {
	tmpl := template(pkix.Name{CommonName: name})
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	tmpl.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return a.issue(tmpl)
}

// Client issues the certificate of a user with groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	tmpl := template(pkix.Name{CommonName: user, Organization: groups})
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(tmpl)
}

// TLS is a server certificate ready to serve with.
func (a *Authority) TLS(name string) (tls.Certificate, error) {
	p, err := a.Server(name)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(p.Cert, p.Key)
}

func (a *Authority) issue(tmpl *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %s: %w", tmpl.Subject.CommonName, err)
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue the certificate of %s: %w", tmpl.Subject.CommonName, err)
	}
	pem, err := keyPEM(key)
	return Pair{Cert: block("CERTIFICATE", der), Key: pem}, err
}

func template(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic("no randomness: " + err.Error())
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
	}
}

// keyPair is a key for service-account tokens: private and public, PEM.
func keyPair() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the service-account key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make the service-account key: %w", err)
	}
	private, err = keyPEM(key)
	return private, block("PUBLIC KEY", der), err
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return block("EC PRIVATE KEY", der), nil
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeAll puts files that only their owner reads into a folder.
func writeAll(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
