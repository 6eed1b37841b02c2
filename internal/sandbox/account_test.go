package sandbox_test

import (
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// scale sets the replicas of web/web of a side.
func (u *user) scale(side, replicas string) {
	u.t.Helper()
	_, err := u.kube(side).AppsV1().Deployments("web").Patch(u.t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
}

// free is what EC2 says that a subnet has left.
func (u *user) free(subnet string) int32 {
	u.t.Helper()
	out := must[*ec2.DescribeSubnetsOutput](u.t)(ec2.NewFromConfig(u.cfg).DescribeSubnets(u.t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}}))
	return *out.Subnets[0].AvailableIpAddressCount
}

// Pods take addresses of their profile's subnets alone, EC2 counts them, and both APIs
// tell of the same subnets and VPC.
func TestSubnetsAreCounted(t *testing.T) {
	text := strings.Replace(minimal, "subnets: [{id: subnet-1, cidr: 10.60.0.0/24, zone: eu-west-1a}]",
		"subnets: [{id: subnet-1, cidr: 10.60.0.0/24, zone: eu-west-1a}, {id: subnet-3, cidr: 10.60.1.0/28, zone: eu-west-1b}]", 1)
	text = strings.Replace(text, `[{name: all, selectors: [{namespace: "*"}]}]`, `[{name: all, selectors: [{namespace: "*"}], subnets: [subnet-3]}]`, 1)
	s, err := sandbox.Parse("narrow", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := userOf(t, serve(t, s, fast), 3)
	if wide, narrow, other := u.free("subnet-1"), u.free("subnet-3"), u.free("subnet-2"); wide != 251 || narrow != 11-2 || other != 251-2 {
		t.Errorf("free are %d of 251, %d of 11 and, of green, %d of 251; two pods run in each cluster", wide, narrow, other)
	}
	profile := must[*eks.DescribeFargateProfileOutput](t)(u.eks.DescribeFargateProfile(t.Context(), &eks.DescribeFargateProfileInput{
		ClusterName: awssdk.String("tiny-blue"), FargateProfileName: awssdk.String("all")})).FargateProfile
	cluster := must[*eks.DescribeClusterOutput](t)(u.eks.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: awssdk.String("tiny-blue")})).Cluster
	subnets := must[*ec2.DescribeSubnetsOutput](t)(ec2.NewFromConfig(u.cfg).DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: profile.Subnets})).Subnets
	if len(subnets) != 1 || *subnets[0].SubnetId != "subnet-3" || *subnets[0].VpcId != *cluster.ResourcesVpcConfig.VpcId || len(cluster.ResourcesVpcConfig.SubnetIds) != 2 {
		t.Errorf("the profile's subnets are %+v, the cluster's VPC is %+v", subnets, cluster.ResourcesVpcConfig)
	}
	u.scale(sandbox.Blue, "5")
	eventually(t, "five pods hold addresses", func() bool { return u.free("subnet-3") == 11-5 })
	u.scale(sandbox.Blue, "1")
	eventually(t, "addresses come back with their pods", func() bool { return u.free("subnet-3") == 11-1 })
}

// The vCPU quota is the account's: what one cluster gives back the other gets.
func TestQuotaIsSharedByBothClusters(t *testing.T) {
	u := userOf(t, serve(t, tiny(t, "quotas: {vcpu: 1, burst: 50}"), fast), 3)
	quotas := servicequotas.NewFromConfig(u.cfg)
	for code, want := range map[string]float64{"L-3032A538": 1, "L-6BAD92DD": 50} {
		out := must[*servicequotas.GetServiceQuotaOutput](t)(quotas.GetServiceQuota(t.Context(), &servicequotas.GetServiceQuotaInput{
			ServiceCode: awssdk.String("fargate"), QuotaCode: &code}))
		if *out.Quota.Value != want {
			t.Errorf("quota %s is %g, want %g", code, *out.Quota.Value, want)
		}
	}
	// Two pods of 0.25 vCPU run in each cluster: the account is full.
	u.scale(sandbox.Blue, "3")
	blue := u.kube(sandbox.Blue)
	eventually(t, "the third pod is refused", func() bool {
		events := must[*corev1.EventList](t)(blue.CoreV1().Events("web").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedScheduling"}))
		return len(events.Items) == 1 && strings.Contains(events.Items[0].Message, "reached the limit on the number of Fargate pods")
	})
	if got := phases(t, blue, "web", "app=web"); strings.Count(got, "Running") != 2 || strings.Count(got, "Pending") != 1 {
		t.Errorf("blue's pods are %s", got)
	}
	u.scale(sandbox.Green, "1")
	eventually(t, "green's pod makes room for blue's", func() bool { return phases(t, blue, "web", "app=web") == "Running Running Running" })
}

func TestAccountsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"negative quota":    {minimal + "quotas: {vcpu: -1}\n", "vcpu is -1"},
		"subnet twice":      {strings.Replace(minimal, "subnet-2", "subnet-1", 1), "subnet-1 is there already"},
		"subnet of nothing": {strings.Replace(minimal, `[{name: all, `, `[{name: all, subnets: [subnet-2], `, 1), `"subnet-2", which is none`},
	} {
		if _, err := sandbox.Parse("tiny", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
