package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/aws"
)

// EKSAPI is what a cluster is found and read with.
type EKSAPI interface {
	DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error)
	ListUpdates(context.Context, *eks.ListUpdatesInput, ...func(*eks.Options)) (*eks.ListUpdatesOutput, error)
	DescribeUpdate(context.Context, *eks.DescribeUpdateInput, ...func(*eks.Options)) (*eks.DescribeUpdateOutput, error)
}

// Options say which cluster and how to treat its API server.
type Options struct {
	EKS EKSAPI
	// AWS is the configuration of the cluster's account; EKS tokens are signed with it.
	AWS awssdk.Config
	// Name is the cluster's name in EKS.
	Name string
	// Clock tells the time; nil means the real one.
	Clock clock.Clock
	// Patience is how long the first contact may go without an answer; 0 means as
	// long as any other request. Before the first change of a run a dead endpoint has
	// to be an error within 30 s (semantics 24).
	Patience time.Duration
	// Retry is how requests to the API server are repeated, as calls to AWS are.
	Retry aws.Options
}

// Client is one cluster, reached.
type Client struct {
	name string
	eks  EKSAPI
	kube kubernetes.Interface
	// dynamic reaches resources whose types are not compiled in.
	dynamic dynamic.Interface
	// endpoint is the API server's; upgrades sends requests that switch protocols.
	endpoint *url.URL
	upgrades http.RoundTripper
	clk      clock.Clock
	// finished remembers updates that have ended; they do not change any more.
	finished *updateCache
	// back knows whether the API server was out of reach a moment ago.
	back *comeback
}

// userAgent is how eksbg names itself to API servers.
const userAgent = "eksbg"

// requestRate bounds the requests to one API server: lists and patches come in
// bursts, and client-go's own 5 a second would stretch a restart.
const (
	requestRate  = 50
	requestBurst = 100
)

// Open finds the cluster, builds a client for its API server and makes sure that
// the server answers and takes the token. Errors name the cluster and the cure.
func Open(ctx context.Context, opt Options) (*Client, error) {
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	first := ctx
	if opt.Patience > 0 {
		first = aws.WithPatience(ctx, opt.Patience)
	}
	found, err := describe(first, opt.EKS, opt.Name)
	if err != nil {
		return nil, err
	}
	ca, err := authority(found)
	if err != nil {
		return nil, err
	}
	c := &Client{name: opt.Name, eks: opt.EKS, clk: opt.Clock, finished: newUpdateCache(), back: &comeback{clk: opt.Clock}}
	if err := c.connect(opt, awssdk.ToString(found.Endpoint), ca); err != nil {
		return nil, err
	}
	if _, _, err := c.ServerVersion(first); err != nil {
		return nil, contactError(opt.Name, awssdk.ToString(found.Endpoint), err)
	}
	return c, nil
}

// connect builds the clients for the API server; all share one transport and one rate.
func (c *Client) connect(opt Options, endpoint string, ca []byte) error {
	requests, upgrades, err := newTransports(opt, c.back, ca)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	config := &rest.Config{
		Host:        endpoint,
		Transport:   requests,
		UserAgent:   userAgent,
		RateLimiter: flowcontrol.NewTokenBucketRateLimiter(requestRate, requestBurst),
		// Warnings of the API server would go to stderr, past whoever renders the run.
		WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
	if c.endpoint, err = url.Parse(endpoint); err != nil {
		return fmt.Errorf("endpoint of cluster %s: %w", c.name, err)
	}
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client for the API server of cluster %s: %w", c.name, err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client for custom resources of cluster %s: %w", c.name, err)
	}
	c.upgrades = upgrades
	return nil
}

// contactError says what to look at when the first request to an API server fails.
func contactError(name, endpoint string, err error) error {
	switch {
	case aws.IsExpired(err):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server of cluster %s does not know these credentials: give the caller an access entry (`aws eks create-access-entry --cluster-name %s`): %w", name, name, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server of cluster %s does not let these credentials read: associate an access policy with the caller's access entry: %w", name, err)
	}
	return fmt.Errorf("the API server of cluster %s at %s cannot be reached: check the network, and the cluster's endpoint access and public access CIDRs: %w", name, endpoint, err)
}

// Name is the cluster's name in EKS.
func (c *Client) Name() string { return c.name }

// Kubernetes is the client for the API server. Requests other than watches are
// repeated for minutes below it, and finished once they are on the wire.
func (c *Client) Kubernetes() kubernetes.Interface { return c.kube }

// Dynamic is the client for resources that eksbg has no types of (argoproj.io), in
// JSON, over the same transport as Kubernetes.
func (c *Client) Dynamic() dynamic.Interface { return c.dynamic }

// ServerVersion is what the API server itself says it is: its minor, and its whole
// version as it states it. Just after an upgrade old servers still answer.
func (c *Client) ServerVersion(ctx context.Context) (minor, gitVersion string, err error) {
	v, err := discovery.ToServerVersionInterfaceWithContext(c.kube.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return "", "", fmt.Errorf("ask the API server of cluster %s for its version: %w", c.name, err)
	}
	minor, err = Minor(v.GitVersion)
	if err != nil {
		return "", "", fmt.Errorf("version of the API server of cluster %s: %w", c.name, err)
	}
	return minor, v.GitVersion, nil
}

// describe reads the cluster from EKS.
func describe(ctx context.Context, api EKSAPI, name string) (*ekstypes.Cluster, error) {
	out, err := api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &name})
	switch {
	case err != nil && aws.IsNotFound(err):
		return nil, fmt.Errorf("EKS has no cluster %s in this account and region: check clusters and region in the plan file (`aws eks list-clusters`): %w", name, err)
	case err != nil && aws.IsDenied(err):
		return nil, fmt.Errorf("not allowed to read cluster %s: the caller needs eks:DescribeCluster: %w", name, err)
	case err != nil:
		return nil, fmt.Errorf("read cluster %s from EKS: %w", name, err)
	case out.Cluster == nil:
		return nil, fmt.Errorf("read cluster %s from EKS: the answer holds no cluster", name)
	}
	return out.Cluster, nil
}

// authority is the cluster's CA as PEM. A cluster that is still being created has
// neither an endpoint nor a CA.
func authority(c *ekstypes.Cluster) ([]byte, error) {
	name := awssdk.ToString(c.Name)
	if awssdk.ToString(c.Endpoint) == "" || c.CertificateAuthority == nil || awssdk.ToString(c.CertificateAuthority.Data) == "" {
		return nil, fmt.Errorf("cluster %s is %s and has no API server yet: wait until it is ACTIVE", name, c.Status)
	}
	pem, err := base64.StdEncoding.DecodeString(*c.CertificateAuthority.Data)
	if err != nil {
		return nil, fmt.Errorf("certificate authority of cluster %s: %w", name, err)
	}
	return pem, nil
}
