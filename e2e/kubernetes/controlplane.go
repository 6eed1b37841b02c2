package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Options say what a control plane stands on.
type Options struct {
	// Name is the cluster's; it is in certificates alone.
	Name string
	// Dir gets its state and its logs. It must be empty.
	Dir string
	// Binary is the multi-call binary; see Binary.
	Binary string
	// Authority issues its certificates, and vouches for TokenURL.
	Authority *Authority
	// TokenURL is asked about bearer tokens with a TokenReview, as EKS's API servers ask
	// the IAM authenticator; empty leaves them unknown.
	TokenURL string
	// KubeletProxy is the unix socket of an HTTP CONNECT proxy through which the API
	// server reaches kubelets; empty is none.
	KubeletProxy string
}

// ControlPlane is a control plane that runs until Close.
type ControlPlane struct {
	dir     string
	url     string
	etcdURL string
	ca      []byte
	admin   Pair

	etcd, apiserver, controllers *process
	closing                      chan struct{}
	once                         sync.Once
	wg                           sync.WaitGroup
}

// startTries bounds how often a start is tried whose ports somebody else took meanwhile.
const startTries = 3

// Start brings a control plane up; its API answers when it returns. ctx bounds the start
// alone. The caller closes what Start returned.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	var errs []error
	for range startTries {
		c, err := start(ctx, o)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("start the control plane of %s: %w", o.Name, errors.Join(errs...))
}

func start(ctx context.Context, o Options) (_ *ControlPlane, err error) {
	c := &ControlPlane{dir: o.Dir, ca: o.Authority.PEM(), closing: make(chan struct{})}
	var ports [3]int
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	c.url, c.etcdURL = "https://127.0.0.1:"+strconv.Itoa(ports[2]), "http://127.0.0.1:"+strconv.Itoa(ports[0])
	if err := os.RemoveAll(filepath.Join(c.dir, "etcd")); err != nil {
		return nil, err
	}
	if err := c.write(o); err != nil {
		return nil, fmt.Errorf("write its files: %w", err)
	}
	c.etcd = newProcess(o.Binary, c.dir, "etcd", c.etcdArgs(ports[0], ports[1])...)
	c.apiserver = newProcess(o.Binary, c.dir, "kube-apiserver", c.apiserverArgs(ports[0], ports[2], o)...)
	c.controllers = newProcess(o.Binary, c.dir, "kube-controller-manager", c.controllersArgs()...)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := c.etcd.start(); err != nil {
		return nil, err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return nil, err
	}
	if err := c.controllers.start(); err != nil {
		return nil, err
	}
	c.wg.Go(c.supervise)
	return c, nil
}

// supervise starts the controllers again when they have ended, as the kubelet of a
// control plane does: they give up when the API server is away as they begin.
func (c *ControlPlane) supervise() {
	for {
		select {
		case <-c.closing:
			return
		case <-c.controllers.ended():
		}
		select {
		case <-c.closing:
			return
		case <-c.etcd.ended():
			return
		case <-time.After(superviseAgain):
		}
		if c.controllers.start() != nil {
			return
		}
	}
}

// superviseAgain is how long the controllers stay away before they are started again.
const superviseAgain = 500 * time.Millisecond

func (c *ControlPlane) file(name string) string { return filepath.Join(c.dir, "config", name) }

// write leaves keys, certificates and configuration in the folder.
func (c *ControlPlane) write(o Options) error {
	server, err := o.Authority.Server("kube-apiserver")
	if err != nil {
		return err
	}
	if c.admin, err = o.Authority.Client("kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	controllers, err := o.Authority.Client("system:kube-controller-manager", "system:masters")
	if err != nil {
		return err
	}
	kubelet, err := o.Authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	private, public, err := keyPair()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"ca.crt": c.ca, "server.crt": server.Cert, "server.key": server.Key, "sa.key": private, "sa.pub": public,
		"kubelet-client.crt": kubelet.Cert, "kubelet-client.key": kubelet.Key, "egress.yaml": egress(o.KubeletProxy),
	}
	if files["controllers.kubeconfig"], err = kubeconfig(c.url, c.ca, &controllers); err != nil {
		return err
	}
	if files["token-webhook.kubeconfig"], err = kubeconfig(o.TokenURL, c.ca, nil); err != nil {
		return err
	}
	return writeAll(filepath.Join(c.dir, "config"), files)
}

// URL is where the API server itself listens.
func (c *ControlPlane) URL() string { return c.url }

// Config is for clients of an administrator, straight to the API server and without a
// limit on their rate.
func (c *ControlPlane) Config() *rest.Config {
	cfg := &rest.Config{Host: c.url, QPS: -1}
	cfg.CAData, cfg.CertData, cfg.KeyData = c.ca, c.admin.Cert, c.admin.Key
	return cfg
}

// Logs is the folder with the log of each process.
func (c *ControlPlane) Logs() string { return c.dir }

// KillAPIServer ends the API server as kill -9 does, and waits until it is gone. The
// rest goes on; StartAPIServer brings it back.
func (c *ControlPlane) KillAPIServer() error { return c.apiserver.kill() }

// StartAPIServer starts the API server at the place that it had, and returns when it is
// ready. It must not be running.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := c.apiserver.start(); err != nil {
		return err
	}
	cfg := c.Config()
	cfg.Timeout = 2 * time.Second
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	retry := time.NewTicker(lockRetry)
	defer retry.Stop()
	for {
		ready, last := probe(ctx, client, c.url+"/readyz")
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until kube-apiserver is ready: %w (it says: %s)", ctx.Err(), last)
		case <-c.etcd.ended():
			return c.etcd.failure()
		case <-c.apiserver.ended():
			return c.apiserver.failure()
		case <-retry.C:
		}
	}
}

func probe(ctx context.Context, client *http.Client, url string) (bool, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	res, err := client.Do(req)
	if err != nil {
		return false, err.Error()
	}
	defer res.Body.Close() //nolint:errcheck // read to its end or of no interest
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return false, err.Error()
	}
	return res.StatusCode == http.StatusOK, string(text)
}

// Running is an error when etcd or the API server has ended that should run.
func (c *ControlPlane) Running() error {
	for _, p := range []*process{c.etcd, c.apiserver} {
		select {
		case <-p.ended():
			return p.failure()
		default:
		}
	}
	return nil
}

// Close ends the processes and waits for them; what they wrote stays. A second Close
// does nothing.
func (c *ControlPlane) Close() error {
	c.once.Do(func() { close(c.closing) })
	c.wg.Wait()
	var errs []error
	for _, p := range []*process{c.controllers, c.apiserver, c.etcd} {
		errs = append(errs, p.kill())
	}
	return errors.Join(errs...)
}
