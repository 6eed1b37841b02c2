package kubernetes

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// offControllers are those that need what is not there. Nobody sends the heartbeats of
// Fargate's nodes here, so nothing may call them dead for the lack of them; and there
// are no volumes, and no certificates to sign.
var offControllers = []string{
	"node-lifecycle-controller", "taint-eviction-controller", "device-taint-eviction-controller", "node-ipam-controller",
	"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller", "persistentvolume-expander-controller",
	"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller", "ephemeral-volume-controller",
	"certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller",
	"certificatesigningrequest-signing-controller", "ttl-controller", "resourceclaim-controller",
}

func (c *ControlPlane) etcdArgs(client, peer int) []string {
	own, others := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	return []string{
		"--name=default", "--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + own, "--advertise-client-urls=" + own,
		"--listen-peer-urls=" + others, "--initial-advertise-peer-urls=" + others, "--initial-cluster=default=" + others,
		// What it holds dies with the test.
		"--unsafe-no-fsync", "--log-level=warn", "--quota-backend-bytes=4294967296",
	}
}

func (c *ControlPlane) apiserverArgs(etcd, port int, o Options) []string {
	args := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", etcd),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--client-ca-file=" + c.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file("sa.pub"), "--service-account-signing-key-file=" + c.file("sa.key"),
		"--kubelet-client-certificate=" + c.file("kubelet-client.crt"), "--kubelet-client-key=" + c.file("kubelet-client.key"),
		"--service-cluster-ip-range=10.100.0.0/16", "--authorization-mode=RBAC", "--allow-privileged=true",
		// It would taint each new node until the node-lifecycle controller, which is off, has seen it.
		"--disable-admission-plugins=TaintNodesByCondition",
	}
	if o.TokenURL != "" {
		args = append(args, "--authentication-token-webhook-config-file="+c.file("token-webhook.kubeconfig"),
			"--authentication-token-webhook-version=v1", "--authentication-token-webhook-cache-ttl=5s")
	}
	if o.KubeletProxy != "" {
		args = append(args, "--egress-selector-config-file="+c.file("egress.yaml"))
	}
	return args
}

func (c *ControlPlane) controllersArgs() []string {
	return []string{
		"--kubeconfig=" + c.file("controllers.kubeconfig"),
		"--service-account-private-key-file=" + c.file("sa.key"), "--root-ca-file=" + c.file("ca.crt"),
		"--leader-elect=false", "--secure-port=0", "--allocate-node-cidrs=false",
		"--controllers=*,-" + strings.Join(offControllers, ",-"),
		// The defaults are for clusters that share their API server; here thousands of pods
		// are to roll, and what is measured is not the controllers.
		"--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-deployment-syncs=20",
		"--concurrent-replicaset-syncs=20", "--concurrent-statefulset-syncs=20", "--concurrent-disruption-syncs=5",
		// Controllers of the workloads wait this long before they believe that a pod is gone.
		"--min-resync-period=12h",
	}
}

// egress sends what the API server says to kubelets through a proxy, since nodes have
// addresses of a VPC that is not there
// (https://kubernetes.io/docs/tasks/extend-kubernetes/setup-konnectivity/).
func egress(socket string) []byte {
	return fmt.Appendf(nil, `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport:
        uds: {udsName: %q}
`, socket)
}

// kubeconfig of one user; with a nil pair of one that does not authenticate.
func kubeconfig(url string, ca []byte, p *Pair) ([]byte, error) {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["it"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	user := &clientcmdapi.AuthInfo{}
	if p != nil {
		user.ClientCertificateData, user.ClientKeyData = p.Cert, p.Key
	}
	cfg.AuthInfos["me"] = user
	cfg.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "me"}
	cfg.CurrentContext = "it"
	return clientcmd.Write(*cfg)
}
