package sandbox

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// EnvPath is the file of export lines that a shell sources.
func (s *Sandbox) EnvPath() string { return filepath.Join(s.dir, "env") }

// PlanFile is the plan file that fits this world.
func (s *Sandbox) PlanFile() string { return filepath.Join(s.dir, "plan.yaml") }

// Kubeconfig is the file with the contexts blue and green.
func (s *Sandbox) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// RequestsPath is the log of every request served, one JSON object a line.
func (s *Sandbox) RequestsPath() string { return filepath.Join(s.dir, "requests.ndjson") }

// WorldPath is the file that World is kept in.
func (s *Sandbox) WorldPath() string { return filepath.Join(s.dir, "world.json") }

// Faults are the disturbances; more can be added while the sandbox serves.
func (s *Sandbox) Faults() *wire.Faults { return s.faults }

// Keys are the credentials that the services accept; Expire ends one.
func (s *Sandbox) Keys() *wire.Keys { return s.keys }

// Log is the request log; Watch follows it.
func (s *Sandbox) Log() *wire.Log { return s.log }

// Scenario is what is served, with durations as they are at this speed.
func (s *Sandbox) Scenario() *Scenario { return s.scenario }

// Kube is the Kubernetes half of a side, for tests that reach into it; nil when it does
// not live in this process.
func (s *Sandbox) Kube(side string) *kube.Cluster {
	if c := s.cluster(side); c != nil {
		k, _ := c.kube.(*kube.Cluster)
		return k
	}
	return nil
}

// Versions are the minors of the control planes by side, empty where there is none now.
func (s *Sandbox) Versions() map[string]string {
	versions := map[string]string{}
	for _, side := range s.scenario.Sides() {
		versions[side] = s.eks.Version(s.scenario.Side(side).Name)
	}
	return versions
}

// Raise puts the control plane of a side at a minor at once: somebody else's update of it
// has ended. What runs on it is as it was.
func (s *Sandbox) Raise(side, minor string) error {
	return s.eks.Raise(s.scenario.Side(side).Name, minor)
}

// Resolver is host:port of the DNS server.
func (s *Sandbox) Resolver() string { return s.dns.Addr() }

// DataPort is the port of every entrance of the data plane.
func (s *Sandbox) DataPort() int { return s.edge.Port() }

// Fail makes a cluster (by side) answer a part of its requests wrongly from now on; Heal ends that.
func (s *Sandbox) Fail(f Failure) { s.edge.Fail(f.edge(s.scenario)) }

// Heal ends the failures of a side's answers.
func (s *Sandbox) Heal(side string) { s.edge.Heal(s.scenario.Side(side).Name) }

// unset are the variables of a laptop's own AWS set-up that would reach into the
// sandbox, or let a client reach out of it.
var unset = []string{
	"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE",
	"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ENDPOINT_URL",
	"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_CA_BUNDLE", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT",
	"AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE", "AWS_ACCOUNT_ID",
}

func (s *Sandbox) exports() map[string]string {
	env := map[string]string{
		"AWS_REGION": s.scenario.Region, "AWS_DEFAULT_REGION": s.scenario.Region,
		"AWS_ACCESS_KEY_ID": wire.AccessKey, "AWS_SECRET_ACCESS_KEY": wire.Secret,
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_CONFIG_FILE":             filepath.Join(s.dir, "aws-config"),
		"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(s.dir, "aws-credentials"),
		"AWS_PAGER":                   "",
		"KUBECONFIG":                  s.Kubeconfig(),
	}
	for name, url := range s.urls {
		env["AWS_ENDPOINT_URL_"+name] = url
	}
	return env
}

// Env is the environment for a client of the sandbox, as KEY=VALUE, to be put after
// the process's own: what must not be set there is set to nothing.
func (s *Sandbox) Env() []string {
	var env []string
	for k, v := range s.exports() {
		env = append(env, k+"="+v)
	}
	for _, k := range unset {
		env = append(env, k+"=")
	}
	env = append(env, "NO_PROXY="+noProxy, "no_proxy="+noProxy)
	slices.Sort(env)
	return env
}

const noProxy = "127.0.0.1,localhost"

func (s *Sandbox) writeFiles() error {
	kubeconfig, err := s.kubeconfig()
	if err != nil {
		return err
	}
	plan, err := s.plan()
	if err != nil {
		return err
	}
	if err := s.writeManifests(); err != nil {
		return err
	}
	for path, text := range map[string][]byte{
		s.EnvPath(): s.envFile(), s.Kubeconfig(): kubeconfig, s.PlanFile(): plan,
		filepath.Join(s.dir, "aws-config"): nil, filepath.Join(s.dir, "aws-credentials"): nil,
	} {
		if err := replace(path, text); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

func (s *Sandbox) envFile() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# The sandbox %s. Use it with: . %s\n", s.scenario.Name, quote(s.EnvPath()))
	exports := s.exports()
	for _, k := range slices.Sorted(maps.Keys(exports)) {
		fmt.Fprintf(&b, "export %s=%s\n", k, quote(exports[k]))
	}
	fmt.Fprintf(&b, "export NO_PROXY=%q no_proxy=%q\n", noProxy+"${NO_PROXY:+,$NO_PROXY}", noProxy+"${no_proxy:+,$no_proxy}")
	fmt.Fprintf(&b, "unset %s\n", strings.Join(unset, " "))
	return []byte(b.String())
}

// quote makes one word of a shell out of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// rewriteKubeconfig puts the clusters that there are now into the kubeconfig.
func (s *Sandbox) rewriteKubeconfig() error {
	s.files.Lock()
	defer s.files.Unlock()
	text, err := s.kubeconfig()
	if err != nil {
		return err
	}
	return replace(s.Kubeconfig(), text)
}

func (s *Sandbox) kubeconfig() ([]byte, error) {
	cfg := clientcmdapi.NewConfig()
	for side, c := range s.running() {
		cfg.Clusters[c.name] = &clientcmdapi.Cluster{Server: c.url, CertificateAuthorityData: c.kube.CA()}
		cfg.AuthInfos[c.name+"-admin"] = &clientcmdapi.AuthInfo{Token: c.token}
		cfg.Contexts[side] = &clientcmdapi.Context{Cluster: c.name, AuthInfo: c.name + "-admin"}
	}
	if cfg.Contexts[Blue] != nil {
		cfg.CurrentContext = Blue
	}
	text, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return text, nil
}
