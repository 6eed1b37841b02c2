package eks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func creation(name, version string, edit ...func(*awseks.CreateClusterInput)) *awseks.CreateClusterInput {
	in := &awseks.CreateClusterInput{
		Name: &name, Version: &version, RoleArn: aws.String("arn:aws:iam::111122223333:role/control-plane"), ClientRequestToken: aws.String(token),
		ResourcesVpcConfig: &types.VpcConfigRequest{SubnetIds: []string{"subnet-a", "subnet-b"}},
	}
	for _, e := range edit {
		e(in)
	}
	return in
}

func (r *rig) status(t *testing.T, name string) types.ClusterStatus {
	t.Helper()
	out, err := r.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: &name})
	if err != nil {
		return types.ClusterStatus(wiretest.Code(err))
	}
	return out.Cluster.Status
}

func TestAClusterComesAndGoes(t *testing.T) {
	r, w := newWorld(t, nil)
	out, err := r.CreateCluster(t.Context(), creation("new", "1.33"))
	if err != nil {
		t.Fatal(err)
	}
	if c := out.Cluster; c.Status != types.ClusterStatusCreating || c.Endpoint != nil || c.CertificateAuthority.Data != nil || *c.ResourcesVpcConfig.VpcId != "vpc-1" ||
		!c.ResourcesVpcConfig.EndpointPublicAccess || c.AccessConfig.AuthenticationMode != types.AuthenticationModeConfigMap || c.UpgradePolicy.SupportType != types.SupportTypeExtended {
		t.Errorf("accepted as %+v", c)
	}
	if again, err := r.CreateCluster(t.Context(), creation("new", "1.33")); err != nil || *again.Cluster.Arn != *out.Cluster.Arn {
		t.Errorf("the same again: %v", err)
	}
	r.clock.Step(9*time.Minute - time.Second)
	if s := r.status(t, "new"); s != types.ClusterStatusCreating {
		t.Errorf("before its time it is %s", s)
	}
	r.clock.Step(time.Second)
	eventually(t, "it is active", func() bool { return r.status(t, "new") == types.ClusterStatusActive })
	now, err := r.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: aws.String("new")})
	if err != nil {
		t.Fatal(err)
	}
	if c := now.Cluster; *c.Endpoint != "https://127.0.0.1:1" || *c.CertificateAuthority.Data != "UEVN" || !strings.HasPrefix(*c.Identity.Oidc.Issuer, "https://oidc.eks.eu-west-1.") ||
		*c.Version != "1.33" || !c.CreatedAt.Equal(start) {
		t.Errorf("it is %+v", c)
	}
	if got := w.told(); !slices.Equal(got, []string{"start new 1.33 self-managed=true"}) {
		t.Errorf("asked of the world: %q", got)
	}
	if r.svc.Version("new") != "1.33" || !slices.Contains(r.svc.Clusters(), "new") {
		t.Errorf("clusters are %v, it is at %s", r.svc.Clusters(), r.svc.Version("new"))
	}
	// It was created at its version.
	if _, err := r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{Name: aws.String("new"), Version: aws.String("1.32")}); wiretest.Code(err) != "InvalidParameterException" {
		t.Errorf("rolled back: %v", err)
	}

	gone, err := r.DeleteCluster(t.Context(), &awseks.DeleteClusterInput{Name: aws.String("new")})
	if err != nil || gone.Cluster.Status != types.ClusterStatusDeleting {
		t.Fatalf("deleted: %v %v", gone, err)
	}
	if _, err := r.DeleteCluster(t.Context(), &awseks.DeleteClusterInput{Name: aws.String("new")}); wiretest.Code(err) != "ResourceInUseException" {
		t.Errorf("deleted twice: %v", err)
	}
	r.clock.Step(3 * time.Minute)
	if s := r.status(t, "new"); s != "ResourceNotFoundException" {
		t.Errorf("then it is %s", s)
	}
	if got := w.told(); !slices.Equal(got, []string{"stop new"}) {
		t.Errorf("asked of the world: %q", got)
	}
	if _, err := r.CreateCluster(t.Context(), creation("new", "1.33")); err != nil {
		t.Errorf("created anew: %v", err)
	}
}

func TestAClusterThatDoesNotStart(t *testing.T) {
	r, w := newWorld(t, nil)
	w.start = errStart
	if _, err := r.CreateCluster(t.Context(), creation("new", "1.33")); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(9 * time.Minute)
	eventually(t, "it has failed", func() bool { return r.status(t, "new") == types.ClusterStatusFailed })
	out, err := r.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: aws.String("new")})
	if err != nil || !strings.Contains(*out.Cluster.Health.Issues[0].Message, errStart.Error()) {
		t.Errorf("it says %+v %v", out, err)
	}
	if _, err := r.DeleteCluster(t.Context(), &awseks.DeleteClusterInput{Name: aws.String("new")}); err != nil {
		t.Errorf("deleted: %v", err)
	}
}

func TestClustersThatAreRefused(t *testing.T) {
	subnets := func(ids ...string) func(*awseks.CreateClusterInput) {
		return func(in *awseks.CreateClusterInput) { in.ResourcesVpcConfig.SubnetIds = ids }
	}
	for name, tt := range map[string]struct {
		in            *awseks.CreateClusterInput
		code, message string
	}{
		"there already": {creation("blue", "1.33"), "ResourceInUseException", "Cluster already exists with name: blue"},
		"not offered":   {creation("new", "1.99"), "InvalidParameterException", "unsupported Kubernetes version"},
		"name":          {creation("no name", "1.33"), "InvalidParameterException", `Cluster name "no name" is not valid`},
		"no such subnet": {creation("new", "1.33", subnets("subnet-a", "gone-b")), "InvalidParameterException",
			"The subnet ID 'gone-b' does not exist (Service: Ec2, Status Code: 400, Error Code: InvalidSubnetID.NotFound)"},
		"one zone": {creation("new", "1.33", subnets("subnet-a")), "InvalidParameterException", "Subnets specified must be in at least two different AZs"},
		"two VPCs": {creation("new", "1.33", subnets("subnet-a", "other-b")), "InvalidParameterException", "Subnets specified must belong to the same VPC"},
		"no way in": {creation("new", "1.33", func(in *awseks.CreateClusterInput) { in.ResourcesVpcConfig.EndpointPublicAccess = aws.Bool(false) }),
			"InvalidParameterException", "Private and public endpoint access cannot be false"},
		"role": {creation("new", "1.33", func(in *awseks.CreateClusterInput) { in.RoleArn = aws.String("admin") }), "InvalidParameterException", `roleArn "admin" is not valid`},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newWorld(t, nil)
			_, err := r.CreateCluster(t.Context(), tt.in)
			if wiretest.Code(err) != tt.code || message(err) != tt.message {
				t.Errorf("got %v", err)
			}
		})
	}
	r, _ := newWorld(t, func(o *eks.Options) { o.MaxClusters = 2 })
	_, err := r.CreateCluster(t.Context(), creation("new", "1.33"))
	if wiretest.Code(err) != "ResourceLimitExceededException" || message(err) != "Cluster limit exceeded for account." {
		t.Errorf("a third of two: %v", err)
	}
}

func TestClustersThatCannotBeDeleted(t *testing.T) {
	r, _ := newWorld(t, nil, workers)
	if err := r.svc.AddCluster(eks.Cluster{Name: "kept", Version: "1.32", DeletionProtection: true}); err != nil {
		t.Fatal(err)
	}
	for cluster, want := range map[string]string{
		"blue": "Cluster has Fargate Profiles in ACTIVE/CREATING state", "green": "Cluster has nodegroups attached",
		"kept": "Cluster kept cannot be deleted because deletion protection is enabled", "none": "No cluster found for name: none.",
	} {
		if _, err := r.DeleteCluster(t.Context(), &awseks.DeleteClusterInput{Name: &cluster}); message(err) != want {
			t.Errorf("%s: %v", cluster, err)
		}
	}
}

func profileOf(name string, edit ...func(*awseks.CreateFargateProfileInput)) *awseks.CreateFargateProfileInput {
	in := &awseks.CreateFargateProfileInput{
		ClusterName: aws.String("green"), FargateProfileName: &name, PodExecutionRoleArn: aws.String("arn:aws:iam::111122223333:role/pods"),
		ClientRequestToken: aws.String("token-" + name), Subnets: []string{"subnet-a"},
		Selectors: []types.FargateProfileSelector{{Namespace: aws.String("shop"), Labels: map[string]string{"tier": "web"}}},
	}
	for _, e := range edit {
		e(in)
	}
	return in
}

func (r *rig) profileStatus(t *testing.T, name string) string {
	t.Helper()
	out, err := r.DescribeFargateProfile(t.Context(), &awseks.DescribeFargateProfileInput{ClusterName: aws.String("green"), FargateProfileName: &name})
	if err != nil {
		return wiretest.Code(err)
	}
	return string(out.FargateProfile.Status)
}

// Profiles come and go one after the other, and take their pods with them.
func TestProfilesComeAndGo(t *testing.T) {
	r, w := newWorld(t, nil)
	create := func(in *awseks.CreateFargateProfileInput) error {
		_, err := r.CreateFargateProfile(t.Context(), in)
		return err
	}
	remove := func(name string) error {
		_, err := r.DeleteFargateProfile(t.Context(), &awseks.DeleteFargateProfileInput{ClusterName: aws.String("green"), FargateProfileName: &name})
		return err
	}
	for range 2 { // the second is a replay
		if err := create(profileOf("one")); err != nil {
			t.Fatal(err)
		}
	}
	err := create(profileOf("two"))
	if want := "Cannot create Fargate Profile two because cluster green currently has Fargate profile one in status CREATING"; wiretest.Code(err) != "ResourceInUseException" || message(err) != want {
		t.Errorf("a second one at once: %v", err)
	}
	if s := r.profileStatus(t, "one"); s != "CREATING" {
		t.Errorf("at first it is %s", s)
	}
	for _, name := range []string{"one", "two"} {
		r.clock.Step(time.Minute)
		if s := r.profileStatus(t, "one"); s != "ACTIVE" {
			t.Errorf("then it is %s", s)
		}
		if name == "one" {
			if err := create(profileOf("two")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := remove("one"); err != nil {
		t.Fatal(err)
	}
	if want := "Cannot Delete Fargate Profile two because cluster green currently has Fargate profile one in status DELETING"; message(remove("two")) != want {
		t.Errorf("two deletions at once: %v", remove("two"))
	}
	if err := create(profileOf("three")); wiretest.Code(err) != "ResourceInUseException" {
		t.Errorf("a creation during a deletion: %v", err)
	}
	r.clock.Step(time.Minute)
	if s := r.profileStatus(t, "one"); s != "ResourceNotFoundException" {
		t.Errorf("in the end it is %s", s)
	}
	want := []string{"profiles of green: [one]", "profiles of green: [one two]", "profiles of green: [two]", "drop pods of green/one"}
	if diff := cmp.Diff(want, w.told()); diff != "" {
		t.Error(diff)
	}
}

func TestProfilesThatAreRefused(t *testing.T) {
	r, _ := newWorld(t, func(o *eks.Options) { o.MaxProfiles = 1 })
	for name, tt := range map[string]struct {
		edit          func(*awseks.CreateFargateProfileInput)
		code, message string
	}{
		"no selector": {func(in *awseks.CreateFargateProfileInput) { in.Selectors = nil }, "InvalidParameterException", "between 1 and 5 selectors"},
		"six selectors": {func(in *awseks.CreateFargateProfileInput) { in.Selectors = slices.Repeat(in.Selectors, 6) }, "InvalidParameterException",
			"between 1 and 5 selectors"},
		"no namespace": {func(in *awseks.CreateFargateProfileInput) { in.Selectors[0].Namespace = nil }, "InvalidParameterException", "must have a namespace"},
		"no role":      {func(in *awseks.CreateFargateProfileInput) { in.PodExecutionRoleArn = aws.String("pods") }, "InvalidParameterException", "podExecutionRoleArn"},
		"subnet of another VPC": {func(in *awseks.CreateFargateProfileInput) { in.Subnets = []string{"other-a"} }, "InvalidParameterException",
			"Subnet other-a does not exist in the VPC vpc-1"},
		"no cluster": {func(in *awseks.CreateFargateProfileInput) { in.ClusterName = aws.String("none") }, "ResourceNotFoundException", "No cluster found"},
		"there already": {func(in *awseks.CreateFargateProfileInput) {
			in.ClusterName, in.FargateProfileName = aws.String("blue"), aws.String("shop")
		},
			"ResourceInUseException", "A Fargate Profile already exists with this name in this cluster."},
		"too many": {func(in *awseks.CreateFargateProfileInput) { in.ClusterName = aws.String("blue") }, "ResourceLimitExceededException", "limit exceeded"},
	} {
		_, err := r.CreateFargateProfile(t.Context(), profileOf("new", tt.edit))
		if wiretest.Code(err) != tt.code || !strings.Contains(message(err), tt.message) {
			t.Errorf("%s: %v", name, err)
		}
	}
	u, err := r.raise(t, "1.32", token)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.CreateFargateProfile(t.Context(), profileOf("new", func(in *awseks.CreateFargateProfileInput) { in.ClusterName = aws.String("blue") }))
	if want := fmt.Sprintf("Cannot create Fargate Profile new because cluster blue currently has update %s in progress", *u.Id); message(err) != want {
		t.Errorf("during an update: %v", err)
	}
	if _, err := r.CreateCluster(t.Context(), creation("new", "1.33")); err != nil {
		t.Fatal(err)
	}
	_, err = r.CreateFargateProfile(t.Context(), profileOf("new", func(in *awseks.CreateFargateProfileInput) { in.ClusterName = aws.String("new") }))
	if wiretest.Code(err) != "ResourceInUseException" {
		t.Errorf("in a cluster that comes: %v", err)
	}
}

func TestAddonsComeAndGo(t *testing.T) {
	r, w := newWorld(t, nil)
	create := func(name, version string) (*types.Addon, error) {
		in := &awseks.CreateAddonInput{ClusterName: aws.String("green"), AddonName: &name, ConfigurationValues: aws.String("{}"), ClientRequestToken: aws.String(token + name)}
		if version != "" {
			in.AddonVersion = &version
		}
		out, err := r.CreateAddon(t.Context(), in)
		if err != nil {
			return nil, err
		}
		return out.Addon, nil
	}
	state := func() string {
		out, err := r.DescribeAddon(t.Context(), &awseks.DescribeAddonInput{ClusterName: aws.String("green"), AddonName: aws.String("vpc-cni")})
		if err != nil {
			return wiretest.Code(err)
		}
		return string(out.Addon.Status)
	}
	a, err := create("vpc-cni", "")
	if err != nil || a.Status != types.AddonStatusCreating || *a.AddonVersion != "v1.20.5-eksbuild.1" || *a.ConfigurationValues != "{}" {
		t.Fatalf("accepted as %+v %v", a, err)
	}
	r.clock.Step(time.Minute)
	if s := state(); s != "ACTIVE" {
		t.Errorf("then it is %s", s)
	}
	w.mu.Lock()
	w.ails = []eks.Issue{{Code: "InsufficientNumberOfReplicas"}}
	w.mu.Unlock()
	if s := state(); s != "DEGRADED" {
		t.Errorf("without pods it is %s", s)
	}
	for _, tt := range []struct{ name, version, code, message string }{
		{"coredns", "", "ResourceInUseException", "Addon already exists."},
		{"nonesuch", "", "InvalidParameterException", "Addon nonesuch specified is not supported"},
		{"kube-proxy", "v1.30.14-eksbuild.2", "InvalidParameterException", "Addon version specified is not supported"},
	} {
		if _, err := create(tt.name, tt.version); wiretest.Code(err) != tt.code || message(err) != tt.message {
			t.Errorf("%s %s: %v", tt.name, tt.version, err)
		}
	}
	for preserve, want := range map[bool][]string{true: {"install green/vpc-cni v1.20.5-eksbuild.1"}, false: {"install green/vpc-cni v1.20.5-eksbuild.1", "remove green/vpc-cni"}} {
		if s := state(); s == "ResourceNotFoundException" {
			if _, err := create("vpc-cni", ""); err != nil {
				t.Fatal(err)
			}
			r.clock.Step(time.Minute)
		}
		out, err := r.DeleteAddon(t.Context(), &awseks.DeleteAddonInput{ClusterName: aws.String("green"), AddonName: aws.String("vpc-cni"), Preserve: preserve})
		if err != nil || out.Addon.Status != types.AddonStatusDeleting {
			t.Fatalf("deleted: %v %v", out, err)
		}
		if _, err := r.DeleteAddon(t.Context(), &awseks.DeleteAddonInput{ClusterName: aws.String("green"), AddonName: aws.String("vpc-cni")}); wiretest.Code(err) != "ResourceInUseException" {
			t.Errorf("deleted twice: %v", err)
		}
		r.clock.Step(time.Minute)
		if s := state(); s != "ResourceNotFoundException" {
			t.Errorf("in the end it is %s", s)
		}
		if diff := cmp.Diff(want, w.told()); diff != "" {
			t.Errorf("preserve %t: %s", preserve, diff)
		}
	}
}

// AWS's own requests about what comes and goes are understood, and the answers have AWS's
// members alone.
func TestWireFormOfWhatComesAndGoes(t *testing.T) {
	r, _ := newWorld(t, nil, eks.Nodegroup{Name: "own", Max: 1, Template: &eks.LaunchTemplate{ID: "lt-1", Name: "own", Version: "1"}})
	if err := r.svc.AddCluster(eks.Cluster{Name: "auto", Version: "1.32", UpgradedAt: start, AutoMode: true}); err != nil {
		t.Fatal(err)
	}
	back, err := r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{Name: aws.String("auto"), Version: aws.String("1.31")})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []struct {
		name  string
		names []string
	}{
		{"CancelUpdate", []string{"__Name__", "auto"}},
		{"DescribeNodegroup", nil},
		{"UpdateNodegroupVersion", []string{"__Name__", "own"}},
		{"UpdateNodegroupConfig", nil},
		{"CreateCluster", []string{"__Name__", "new"}},
		{"CreateFargateProfile", nil},
		{"DeleteFargateProfile", nil},
		{"CreateAddon", nil},
		{"DeleteAddon", nil},
		{"DeleteCluster", []string{"__Name__", "plain"}},
	} {
		t.Run(op.name, func(t *testing.T) {
			if op.name == "DeleteCluster" {
				if err := r.svc.AddCluster(eks.Cluster{Name: "plain", Version: "1.32"}); err != nil {
					t.Fatal(err)
				}
			}
			r.speaks(t, op.name, append(op.names, "__ClusterName__", "green", "__NodegroupName__", "own", "__Id__", "lt-1", "__ReleaseVersion__", "1.32.11-20261119",
				`"subnetIds":["__Member__","__Member__"]`, `"subnetIds":["subnet-a","subnet-b"]`, `"subnets":["__Member__","__Member__"]`, `"subnets":["subnet-a","subnet-b"]`,
				"__RoleArn__", "arn:role", "__PodExecutionRoleArn__", "arn:role", "__Version__", "1.32", "__ConfigurationValues__", "{}", "__ClientRequestToken__", op.name,
				"__FargateProfileName__", "pods", "__AddonName__", "vpc-cni", "__AddonVersion__", "v1.20.5-eksbuild.1", "__UpdateId__", *back.Update.Id)...)
			r.clock.Step(10 * time.Minute)
			if op.name == "UpdateNodegroupVersion" {
				eventually(t, "the nodes are there", func() bool { return r.group(t, "own").Status == types.NodegroupStatusActive })
			}
		})
	}
}
