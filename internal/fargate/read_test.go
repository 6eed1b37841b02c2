package fargate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	quotatypes "github.com/aws/aws-sdk-go-v2/service/servicequotas/types"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/fargate"
	sandboxec2 "github.com/eksbg/eksbg/internal/sandbox/ec2"
	sandboxeks "github.com/eksbg/eksbg/internal/sandbox/eks"
	sandboxquotas "github.com/eksbg/eksbg/internal/sandbox/servicequotas"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an account with a cluster "green" of two profiles that share a subnet.
type world struct {
	eks, ec2, quotas *wiretest.Server
	keys             *wire.Keys
	left             map[string]int
}

func newWorld(t *testing.T, applied map[string]float64) *world {
	t.Helper()
	w := &world{keys: wire.NewKeys(), left: map[string]int{"subnet-0a": 7, "subnet-0b": 40}}
	clusters := sandboxeks.New(sandboxeks.Options{Keys: w.keys})
	t.Cleanup(clusters.Close)
	err := clusters.AddCluster(sandboxeks.Cluster{Name: "green", Version: "1.31", Profiles: []sandboxeks.FargateProfile{
		{Name: "system", Subnets: []string{"subnet-0a"}, Selectors: []sandboxeks.Selector{{Namespace: "kube-system"}}},
		{Name: "apps", Subnets: []string{"subnet-0a", "subnet-0b"}, Selectors: []sandboxeks.Selector{{Namespace: "shop"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	subnets := sandboxec2.New(sandboxec2.Options{Keys: w.keys, Free: func(id string) (int, bool) { n, ok := w.left[id]; return n, ok }})
	for _, id := range slices.Sorted(maps.Keys(w.left)) {
		if err := subnets.AddSubnet(sandboxec2.Subnet{ID: id, VPC: "vpc-1", CIDR: "10.0.0.0/24", Zone: "eu-west-1a"}); err != nil {
			t.Fatal(err)
		}
	}
	quotas := sandboxquotas.Catalogue()
	for code, v := range applied {
		if err := sandboxquotas.Apply(quotas, code, v); err != nil {
			t.Fatal(err)
		}
	}
	w.eks, w.ec2 = wiretest.Serve(t, clusters), wiretest.Serve(t, subnets)
	w.quotas = wiretest.Serve(t, sandboxquotas.New(sandboxquotas.Options{Keys: w.keys, Quotas: quotas}))
	return w
}

func (w *world) read(ctx context.Context, cluster string, used int) (fargate.Room, error) {
	return fargate.Read(ctx, eks.NewFromConfig(w.eks.Config()), fargate.SubnetsFunc(ec2.NewFromConfig(w.ec2.Config()).DescribeSubnets), servicequotas.NewFromConfig(w.quotas.Config()), cluster, used)
}

func (w *world) must(t *testing.T, used int) fargate.Room {
	t.Helper()
	room, err := w.read(t.Context(), "green", used)
	if err != nil {
		t.Fatal(err)
	}
	return room
}

// fail has every call of a name fail from now on.
func fail(t *testing.T, s *wiretest.Server, call, code string) {
	t.Helper()
	if err := s.Faults.Add(wire.Fault{Call: call, Error: code, Times: -1}); err != nil {
		t.Fatal(err)
	}
}

func TestRoomOfAnAccount(t *testing.T) {
	w := newWorld(t, map[string]float64{sandboxquotas.VCPU: 12.5})
	want := fargate.Room{
		Addresses: map[string]int{"system": 7, "apps": 47},
		Subnets:   map[string][]string{"system": {"subnet-0a"}, "apps": {"subnet-0a", "subnet-0b"}},
		Free:      map[string]int{"subnet-0a": 7, "subnet-0b": 40},
		MilliCPU:  12500 - 3250, Burst: 20, PerSecond: 20,
	}
	if diff := cmp.Diff(want, w.must(t, 3250)); diff != "" {
		t.Error(diff)
	}
	// More in use than there is, by what others run, is no room and not less.
	if room := w.must(t, 20_000); room.MilliCPU != 0 {
		t.Errorf("%d thousandths are left", room.MilliCPU)
	}
}

// An account without values of its own has AWS's defaults.
func TestDefaultsWhereTheAccountHasNoQuotaOfItsOwn(t *testing.T) {
	w := newWorld(t, nil)
	room := w.must(t, 1000)
	if room.MilliCPU != 5000 || room.Burst != 20 || room.PerSecond != 20 || len(room.Missing) != 0 {
		t.Errorf("%+v", room)
	}
}

// The launch rate that a burst quota stands for.
func TestLaunchRates(t *testing.T) {
	for burst, want := range map[float64]string{
		100: "20 20", // the default, of which accounts with pods alone get 20
		25:  "20 5",  // the default of smaller regions
		10:  "10 2",  // a new account
		1:   "1 1", 0: "1 1",
		300: "300 20", // somebody asked for more
	} {
		w := newWorld(t, map[string]float64{sandboxquotas.Burst: burst})
		if room := w.must(t, 0); fmt.Sprint(room.Burst, " ", room.PerSecond) != want {
			t.Errorf("of %g: %d at once and %d a second, want %s", burst, room.Burst, room.PerSecond, want)
		}
	}
}

// What cannot be read is Unknown, is named with why and what would cure it, and leaves
// the rest as it is.
func TestWhatCannotBeReadIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(*testing.T, *world)
		check   func(fargate.Room) bool
		missing []string
	}{
		"profiles": {func(t *testing.T, w *world) { fail(t, w.eks, "eks:ListFargateProfiles", "AccessDeniedException") },
			func(r fargate.Room) bool { return len(r.Addresses) == 0 && r.MilliCPU == 6000 },
			[]string{"the Fargate profiles of cluster green could not be read: the caller is not allowed to eks:ListFargateProfiles; allow it"}},
		"one profile": {func(t *testing.T, w *world) {
			if err := w.eks.Faults.Add(wire.Fault{Call: "eks:DescribeFargateProfile", Nth: 1, Error: "AccessDeniedException"}); err != nil {
				t.Fatal(err)
			}
		}, func(r fargate.Room) bool { return r.Addresses["apps"] == fargate.Unknown && r.Addresses["system"] == 7 },
			[]string{"Fargate profile apps of cluster green could not be read: the caller is not allowed to eks:DescribeFargateProfile; allow it"}},
		"subnets": {func(t *testing.T, w *world) { fail(t, w.ec2, "ec2:DescribeSubnets", "UnauthorizedOperation") },
			func(r fargate.Room) bool {
				return r.Addresses["apps"] == fargate.Unknown && r.Addresses["system"] == fargate.Unknown && len(r.Subnets["apps"]) == 2 && r.Burst == 20
			},
			[]string{"the free addresses of subnet-0a, subnet-0b could not be read: the caller is not allowed to ec2:DescribeSubnets; allow it"}},
		"throttled": {func(t *testing.T, w *world) { fail(t, w.ec2, "ec2:DescribeSubnets", "RequestLimitExceeded") },
			func(r fargate.Room) bool { return r.Free["subnet-0a"] == fargate.Unknown },
			[]string{"ec2:DescribeSubnets did not answer: Rate exceeded"}},
		"vCPU": {func(t *testing.T, w *world) {
			fail(t, w.quotas, "servicequotas:GetAWSDefaultServiceQuota", "AccessDeniedException")
		}, func(r fargate.Room) bool {
			return r.MilliCPU == fargate.Unknown && r.Burst == fargate.Unknown && r.PerSecond == fargate.Unknown && r.Addresses["apps"] == 47
		}, []string{
			"the Fargate vCPU quota (L-3032A538) could not be read: the caller is not allowed to servicequotas:GetAWSDefaultServiceQuota; allow it",
			"the Fargate launch rate (L-6BAD92DD) could not be read: the caller is not allowed to servicequotas:GetAWSDefaultServiceQuota; allow it"}},
		"hostile text": {func(t *testing.T, w *world) {
			if err := w.quotas.Faults.Add(wire.Fault{Call: "servicequotas:*", Error: "IllegalArgumentException", Message: "no\x1b[2Jpe", Times: -1}); err != nil {
				t.Fatal(err)
			}
		}, func(r fargate.Room) bool { return true }, []string{"GetServiceQuota: no[2Jpe", "GetServiceQuota: no[2Jpe"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c.spoil(t, w)
			room := w.must(t, 0)
			if !c.check(room) {
				t.Errorf("%+v", room)
			}
			if len(room.Missing) != len(c.missing) {
				t.Fatalf("missing are %q, want %q", room.Missing, c.missing)
			}
			for i, want := range c.missing {
				if !strings.Contains(room.Missing[i], want) {
					t.Errorf("missing is %q, want %q", room.Missing[i], want)
				}
			}
		})
	}
}

// A profile that names a subnet which is gone is not known, the others are.
func TestASubnetThatIsGone(t *testing.T) {
	w := newWorld(t, nil)
	delete(w.left, "subnet-0b") // of EC2's count alone
	if room := w.must(t, 0); room.Addresses["apps"] != 7+251 {
		t.Errorf("%+v", room)
	}
	clusters := sandboxeks.New(sandboxeks.Options{Keys: w.keys})
	defer clusters.Close()
	if err := clusters.AddCluster(sandboxeks.Cluster{Name: "green", Version: "1.31", Profiles: []sandboxeks.FargateProfile{
		{Name: "apps", Subnets: []string{"subnet-0a", "subnet-0z"}}, {Name: "system", Subnets: []string{"subnet-0a"}},
	}}); err != nil {
		t.Fatal(err)
	}
	w.eks = wiretest.Serve(t, clusters)
	room := w.must(t, 0)
	if room.Addresses["apps"] != fargate.Unknown || room.Addresses["system"] != 7 || room.Free["subnet-0z"] != fargate.Unknown {
		t.Errorf("%+v", room)
	}
	if want := []string{"the free addresses of subnet subnet-0z could not be read: EC2 does not show it (deleted, or of another account)"}; !slices.Equal(room.Missing, want) {
		t.Errorf("missing are %q", room.Missing)
	}
}

// A cluster that is not there leaves its profiles unknown.
func TestNoCluster(t *testing.T) {
	w := newWorld(t, nil)
	room, err := w.read(t.Context(), "red", 0)
	if err != nil || len(room.Missing) != 1 || !strings.Contains(room.Missing[0], "No cluster found for name: red.") {
		t.Errorf("%+v (%v)", room, err)
	}
}

// Pages are followed, on both sides.
func TestManyProfiles(t *testing.T) {
	w := newWorld(t, nil)
	clusters := sandboxeks.New(sandboxeks.Options{Keys: w.keys})
	defer clusters.Close()
	c := sandboxeks.Cluster{Name: "green", Version: "1.31"}
	subnets := sandboxec2.New(sandboxec2.Options{Keys: w.keys, Free: func(string) (int, bool) { return 1, true }})
	for i := range 230 { // more than a page of names and than a filter has values
		id := fmt.Sprintf("subnet-%03d", i)
		c.Profiles = append(c.Profiles, sandboxeks.FargateProfile{Name: fmt.Sprintf("p%03d", i), Subnets: []string{id}})
		if err := subnets.AddSubnet(sandboxec2.Subnet{ID: id, CIDR: "10.0.0.0/24"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := clusters.AddCluster(c); err != nil {
		t.Fatal(err)
	}
	w.eks, w.ec2 = wiretest.Serve(t, clusters), wiretest.Serve(t, subnets)
	room := w.must(t, 0)
	if len(room.Addresses) != 230 || room.Addresses["p229"] != 1 || len(room.Missing) != 0 {
		t.Errorf("%d profiles, p229 has %d, missing %q", len(room.Addresses), room.Addresses["p229"], room.Missing)
	}
}

// Expired credentials and an ended context are no gaps.
func TestWhatEndsTheReading(t *testing.T) {
	w := newWorld(t, nil)
	w.keys.Expire(wire.AccessKey, time.Now().Add(-time.Minute))
	if _, err := w.read(t.Context(), "green", 0); err == nil || !strings.Contains(err.Error(), "read what Fargate has room for in cluster green") {
		t.Errorf("with expired credentials: %v", err)
	}
	w = newWorld(t, nil)
	fail(t, w.ec2, "ec2:*", "RequestExpired")
	if _, err := w.read(t.Context(), "green", 0); err == nil {
		t.Error("EC2's own word for expired credentials is a gap")
	}
	w = newWorld(t, nil)
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := w.ec2.Faults.Add(wire.Fault{Call: "ec2:*", Hold: wire.Before}); err != nil {
		t.Fatal(err)
	}
	w.ec2.Faults.OnHold(func(wire.Call) { cancel(stopped) })
	if _, err := w.read(ctx, "green", 0); !errors.Is(err, stopped) {
		t.Errorf("with an ended context: %v", err)
	}
}

// deleting is an EKS whose profile "system" is on its way out.
type deleting struct{ fargate.EKSAPI }

func (d deleting) DescribeFargateProfile(ctx context.Context, in *eks.DescribeFargateProfileInput, o ...func(*eks.Options)) (*eks.DescribeFargateProfileOutput, error) {
	out, err := d.EKSAPI.DescribeFargateProfile(ctx, in, o...)
	if err == nil && *in.FargateProfileName == "system" {
		out.FargateProfile.Status = ekstypes.FargateProfileStatusDeleting
	}
	return out, err
}

func TestAProfileThatIsGoing(t *testing.T) {
	w := newWorld(t, nil)
	room, err := fargate.Read(t.Context(), deleting{eks.NewFromConfig(w.eks.Config())}, ec2.NewFromConfig(w.ec2.Config()), servicequotas.NewFromConfig(w.quotas.Config()), "green", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Fargate profile system of cluster green is DELETING: where its pods go next is not known"}
	if room.Addresses["system"] != fargate.Unknown || room.Addresses["apps"] != 47 || !slices.Equal(room.Missing, want) {
		t.Errorf("%+v", room)
	}
}

// odd is a Service Quotas that answers without a value.
type odd struct {
	fargate.QuotasAPI
	quota *quotatypes.ServiceQuota
}

func (o odd) GetServiceQuota(context.Context, *servicequotas.GetServiceQuotaInput, ...func(*servicequotas.Options)) (*servicequotas.GetServiceQuotaOutput, error) {
	return &servicequotas.GetServiceQuotaOutput{Quota: o.quota}, nil
}

func TestQuotasWithoutAValue(t *testing.T) {
	message, negative := "no access to the source", -1.0
	for want, quota := range map[string]*quotatypes.ServiceQuota{
		"the answer holds no quota": nil,
		"the quota has no value":    {Value: &negative},
		"DEPENDENCY_ACCESS_DENIED_ERROR: no access to the source": {ErrorReason: &quotatypes.ErrorReason{
			ErrorCode: quotatypes.ErrorCodeDependencyAccessDeniedError, ErrorMessage: &message}},
	} {
		w := newWorld(t, nil)
		room, err := fargate.Read(t.Context(), eks.NewFromConfig(w.eks.Config()), ec2.NewFromConfig(w.ec2.Config()), odd{quota: quota}, "green", 0)
		if err != nil || room.MilliCPU != fargate.Unknown || len(room.Missing) != 2 || !strings.Contains(room.Missing[0], want) {
			t.Errorf("%s: %+v (%v)", want, room, err)
		}
	}
}
