package ec2_test

import (
	"encoding/xml"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/sandbox/ec2"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a service with three subnets of two VPCs, one of which is nearly full.
type rig struct {
	*awsec2.Client
	svc  *ec2.Service
	srv  *wiretest.Server
	keys *wire.Keys
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{keys: wire.NewKeys()}
	left := map[string]int{"subnet-0a": 3}
	r.svc = ec2.New(ec2.Options{Region: "ap-northeast-1", Keys: r.keys, Free: func(id string) (int, bool) { n, ok := left[id]; return n, ok }})
	for _, n := range []ec2.Subnet{
		{ID: "subnet-0c", VPC: "vpc-1", CIDR: "10.0.1.0/24", Zone: "ap-northeast-1c"},
		{ID: "subnet-0a", VPC: "vpc-1", CIDR: "10.0.0.0/28", Zone: "ap-northeast-1a", Tags: map[string]string{"kubernetes.io/role/internal-elb": "1", "Name": "pods"}},
		{ID: "subnet-0d", VPC: "vpc-2", CIDR: "10.1.0.0/16", Zone: "ap-northeast-1d"},
	} {
		if err := r.svc.AddSubnet(n); err != nil {
			t.Fatal(err)
		}
	}
	r.srv = wiretest.Serve(t, r.svc)
	r.Client = awsec2.NewFromConfig(r.srv.Config())
	return r
}

func is(name string, values ...string) types.Filter { return types.Filter{Name: &name, Values: values} }

func (r *rig) ids(t *testing.T, in *awsec2.DescribeSubnetsInput) ([]string, error) {
	t.Helper()
	out, err := r.DescribeSubnets(t.Context(), in)
	if err != nil {
		return nil, err
	}
	got := []string{}
	for _, s := range out.Subnets {
		got = append(got, *s.SubnetId)
	}
	return got, nil
}

func TestASubnetAsTheSDKReadsIt(t *testing.T) {
	r := newRig(t)
	out, err := r.DescribeSubnets(t.Context(), &awsec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0a"}})
	if err != nil {
		t.Fatal(err)
	}
	no := aws.Bool(false)
	want := []types.Subnet{{
		SubnetId: aws.String("subnet-0a"), SubnetArn: aws.String("arn:aws:ec2:ap-northeast-1:111122223333:subnet/subnet-0a"),
		VpcId: aws.String("vpc-1"), OwnerId: aws.String("111122223333"), CidrBlock: aws.String("10.0.0.0/28"), State: types.SubnetStateAvailable,
		AvailabilityZone: aws.String("ap-northeast-1a"), AvailabilityZoneId: aws.String("apne1-az1"), AvailableIpAddressCount: aws.Int32(3),
		DefaultForAz: no, MapPublicIpOnLaunch: no, AssignIpv6AddressOnCreation: no, MapCustomerOwnedIpOnLaunch: no, EnableDns64: no, Ipv6Native: no,
		Ipv6CidrBlockAssociationSet:   []types.SubnetIpv6CidrBlockAssociation{},
		PrivateDnsNameOptionsOnLaunch: &types.PrivateDnsNameOptionsOnLaunch{HostnameType: types.HostnameTypeIpName, EnableResourceNameDnsAAAARecord: no, EnableResourceNameDnsARecord: no},
		Tags:                          []types.Tag{{Key: aws.String("Name"), Value: aws.String("pods")}, {Key: aws.String("kubernetes.io/role/internal-elb"), Value: aws.String("1")}},
	}}
	if diff := cmp.Diff(want, out.Subnets, cmpopts.IgnoreUnexported(types.Subnet{}, types.Tag{}, types.PrivateDnsNameOptionsOnLaunch{})); diff != "" {
		t.Error(diff)
	}
	if id, ok := awsmiddleware.GetRequestIDMetadata(out.ResultMetadata); !ok || id == "" {
		t.Error("the answer has no request id")
	}
}

// The SDK ships no snapshot of EC2's answers. Each element of a subnet is one that its
// own decoder of subnets, generated from AWS's model, looks for.
func TestWireFormOfAnswers(t *testing.T) {
	r := newRig(t)
	if _, err := r.ids(t, nil); err != nil {
		t.Fatal(err)
	}
	got := r.srv.Last()
	if ct := got.Header.Get("Content-Type"); ct != "text/xml" {
		t.Errorf("content type is %s", ct)
	}
	var answer struct {
		XMLName xml.Name
		Subnets []struct {
			Elements []struct{ XMLName xml.Name } `xml:",any"`
		} `xml:"subnetSet>item"`
	}
	if err := xml.Unmarshal(got.Response, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.XMLName.Local != "DescribeSubnetsResponse" || answer.XMLName.Space != "http://ec2.amazonaws.com/doc/2016-11-15/" || len(answer.Subnets) != 3 {
		t.Fatalf("the answer is %v with %d subnets", answer.XMLName, len(answer.Subnets))
	}
	source := string(wiretest.Snapshot(t, "ec2", "deserializers.go"))
	_, source, _ = strings.Cut(source, "func awsEc2query_deserializeDocumentSubnet(")
	source, _, _ = strings.Cut(source, "\nfunc ")
	var known []string
	for _, m := range regexp.MustCompile(`EqualFold\("(\w+)"`).FindAllStringSubmatch(source, -1) {
		known = append(known, m[1])
	}
	if len(known) < 20 {
		t.Fatalf("the decoder of the SDK knows %v", known)
	}
	for _, e := range answer.Subnets[0].Elements {
		if !slices.Contains(known, e.XMLName.Local) {
			t.Errorf("%s is not in AWS's model", e.XMLName.Local)
		}
	}
}

func TestAWSsOwnRequestIsUnderstood(t *testing.T) {
	r := newRig(t)
	_, sent := wiretest.SnapshotBody(t, "ec2", "request_snapshot/DescribeSubnets.request.snap")
	req, err := http.NewRequest(http.MethodPost, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.svc.Classify(req, sent), (wire.Call{Name: "ec2:DescribeSubnets", Object: "__Member__"}); got != want {
		t.Errorf("AWS's request is taken for %+v, want %+v", got, want)
	}
	if c := r.svc.Classify(req, []byte("Action=DeleteSubnet&SubnetId=subnet-0a")); !c.Changing {
		t.Errorf("%+v", c)
	}
}

func TestFilters(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name    string
		filters []types.Filter
		want    []string
	}{
		{"none", nil, []string{"subnet-0a", "subnet-0c", "subnet-0d"}},
		{"ids, one of which is not there", []types.Filter{is("subnet-id", "subnet-0c", "subnet-gone")}, []string{"subnet-0c"}},
		{"a VPC", []types.Filter{is("vpc-id", "vpc-1")}, []string{"subnet-0a", "subnet-0c"}},
		{"a VPC and a zone", []types.Filter{is("vpc-id", "vpc-1"), is("availability-zone", "ap-northeast-1c", "ap-northeast-1d")}, []string{"subnet-0c"}},
		{"wildcards", []types.Filter{is("subnet-id", "subnet-0?"), is("cidr-block", "10.0.*")}, []string{"subnet-0a", "subnet-0c"}},
		{"a dot is a dot", []types.Filter{is("cidr-block", "10.0.0.0.28")}, []string{}},
		{"a tag", []types.Filter{is("tag:Name", "pods")}, []string{"subnet-0a"}},
		{"a tag's key", []types.Filter{is("tag-key", "*internal-elb")}, []string{"subnet-0a"}},
		{"addresses", []types.Filter{is("available-ip-address-count", "3", "251")}, []string{"subnet-0a", "subnet-0c"}},
	} {
		got, err := r.ids(t, &awsec2.DescribeSubnetsInput{Filters: c.filters})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v (%v), want %v", c.name, got, err, c.want)
		}
	}
}

func TestPages(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"subnet-1", "subnet-2", "subnet-3", "subnet-4"} {
		if err := r.svc.AddSubnet(ec2.Subnet{ID: id, VPC: "vpc-3", CIDR: "10.2.0.0/24", Zone: "ap-northeast-1a"}); err != nil {
			t.Fatal(err)
		}
	}
	pages := awsec2.NewDescribeSubnetsPaginator(r, &awsec2.DescribeSubnetsInput{MaxResults: aws.Int32(5)})
	var sizes []int
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.Subnets))
	}
	if !slices.Equal(sizes, []int{5, 2}) {
		t.Errorf("pages of %v, want 5 and 2", sizes)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		in   awsec2.DescribeSubnetsInput
		want string
	}{
		{awsec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0a", "subnet-gone"}}, "InvalidSubnetID.NotFound"},
		{awsec2.DescribeSubnetsInput{SubnetIds: []string{"vpc-1"}}, "InvalidSubnetID.Malformed"},
		{awsec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0a"}, MaxResults: aws.Int32(5)}, "InvalidParameterCombination"},
		{awsec2.DescribeSubnetsInput{MaxResults: aws.Int32(4)}, "InvalidParameterValue"},
		{awsec2.DescribeSubnetsInput{NextToken: aws.String("no")}, "InvalidNextToken"},
		{awsec2.DescribeSubnetsInput{Filters: []types.Filter{is("colour", "blue")}}, "InvalidParameterValue"},
		{awsec2.DescribeSubnetsInput{Filters: []types.Filter{is("subnet-id", slices.Repeat([]string{"subnet-0a"}, 201)...)}}, "FilterLimitExceeded"},
		{awsec2.DescribeSubnetsInput{DryRun: aws.Bool(true)}, "DryRunOperation"},
	} {
		if _, err := r.ids(t, &c.in); wiretest.Code(err) != c.want {
			t.Errorf("%+v: %v, want %s", c.in, err, c.want)
		}
	}
	if got := string(r.srv.Last().Response); !strings.Contains(got, "<Response><Errors><Error><Code>DryRunOperation</Code>") || !strings.Contains(got, "<RequestID>") {
		t.Errorf("an error has not EC2's form: %s", got)
	}
	if _, err := r.DescribeVpcs(t.Context(), nil); wiretest.Code(err) != "InvalidAction" {
		t.Errorf("DescribeVpcs: %v", err)
	}
	r.keys.Expire(wire.AccessKey, time.Now().Add(-time.Minute))
	if _, err := r.ids(t, nil); wiretest.Code(err) != "RequestExpired" {
		t.Errorf("with expired keys: %v", err)
	}
}

func TestFaultsHaveTheirStatus(t *testing.T) {
	r := newRig(t)
	for fault, status := range map[string]int{"RequestLimitExceeded": 503, "UnauthorizedOperation": 403, "AuthFailure": 401, "InvalidParameterValue": 400} {
		if err := r.srv.Faults.Add(wire.Fault{Call: "ec2:*", Error: fault}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ids(t, nil); wiretest.Code(err) != fault || r.srv.Last().Status != status {
			t.Errorf("%s: %v with status %d, want %d", fault, err, r.srv.Last().Status, status)
		}
	}
}

func TestSeedsThatAreWrong(t *testing.T) {
	r := newRig(t)
	for name, n := range map[string]ec2.Subnet{
		"twice": {ID: "subnet-0a", CIDR: "10.0.0.0/24"}, "no id": {CIDR: "10.0.0.0/24"},
		"too small": {ID: "subnet-x", CIDR: "10.0.0.0/29"}, "no range": {ID: "subnet-x"}, "IPv6": {ID: "subnet-x", CIDR: "fd00::/64"},
	} {
		if err := r.svc.AddSubnet(n); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}
