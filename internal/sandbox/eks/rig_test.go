package eks_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// rig is a service with one cluster "blue" at 1.31, on a clock that the test moves.
type rig struct {
	*awseks.Client
	svc   *eks.Service
	srv   *wiretest.Server
	clock *clocktesting.FakeClock

	mu       sync.Mutex
	kubelets []string
	told     []string
}

func newRig(t *testing.T, edit func(*eks.Options)) *rig {
	t.Helper()
	r := &rig{clock: clocktesting.NewFakeClock(start), kubelets: []string{"v1.31.14-eks-6ae7ca2"}}
	o := eks.Options{
		Region: "eu-west-1", Clock: r.clock,
		Update: 10 * time.Minute, AddonUpdate: time.Minute, Refresh: 30 * time.Second, Stale: 5 * time.Second,
		Kubelets: func(string) []string { r.mu.Lock(); defer r.mu.Unlock(); return r.kubelets },
	}
	tell := func(what string) { r.mu.Lock(); defer r.mu.Unlock(); r.told = append(r.told, what) }
	o.OnVersion = func(cluster, minor string) { tell(cluster + " " + minor) }
	o.OnAddon = func(cluster, addon, version string) { tell(cluster + " " + addon + " " + version) }
	if edit != nil {
		edit(&o)
	}
	r.svc = eks.New(o)
	t.Cleanup(r.svc.Close)
	err := r.svc.AddCluster(eks.Cluster{
		Name: "blue", Version: "1.31", Endpoint: "https://127.0.0.1:6443", CA: []byte("PEM"),
		Tags:   map[string]string{"team": "shop"},
		Addons: []eks.Addon{{Name: "coredns"}, {Name: "kube-proxy", Version: "v1.31.14-eksbuild.2"}},
		Profiles: []eks.FargateProfile{
			{Name: "shop", Selectors: []eks.Selector{{Namespace: "shop", Labels: map[string]string{"tier": "web"}}}},
			{Name: "system", Selectors: []eks.Selector{{Namespace: "kube-system"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.srv = wiretest.Serve(t, r.svc)
	r.Client = awseks.NewFromConfig(r.srv.Config())
	return r
}

func (r *rig) setKubelets(k ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kubelets = k
}

func (r *rig) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.told...)
}

// message is the text of an API's error, empty for others.
func message(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorMessage()
	}
	return ""
}

func (r *rig) raise(t *testing.T, version, token string) (*types.Update, error) {
	t.Helper()
	out, err := r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{
		Name: aws.String("blue"), Version: &version, ClientRequestToken: aws.String(token),
	})
	if err != nil {
		return nil, err
	}
	return out.Update, nil
}

func (r *rig) cluster(t *testing.T) *types.Cluster {
	t.Helper()
	out, err := r.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: aws.String("blue")})
	if err != nil {
		t.Fatal(err)
	}
	return out.Cluster
}

func (r *rig) update(t *testing.T, id, addon string) *types.Update {
	t.Helper()
	in := &awseks.DescribeUpdateInput{Name: aws.String("blue"), UpdateId: &id}
	if addon != "" {
		in.AddonName = &addon
	}
	out, err := r.DescribeUpdate(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out.Update
}
