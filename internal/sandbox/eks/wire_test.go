package eks_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

// send signs a request by hand and answers what came back.
func (r *rig) send(t *testing.T, method, path, body string) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	creds := aws.Credentials{AccessKeyID: wire.AccessKey, SecretAccessKey: wire.Secret}
	if err := v4.NewSigner().SignHTTP(context.Background(), creds, req, hex.EncodeToString(sum[:]), "eks", "eu-west-1", time.Now()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, got
}

// speaks sends AWS's own request of an operation, with names that exist put in: it is
// understood, and the answer has no member that AWS's own answer has not.
func (r *rig) speaks(t *testing.T, operation string, names ...string) {
	t.Helper()
	line, body := wiretest.SnapshotBody(t, "eks", "request_snapshot/"+operation+".request.snap")
	fill := strings.NewReplacer(names...)
	method, path, _ := strings.Cut(fill.Replace(line), " ")
	sent := fill.Replace(string(body))

	req, err := http.NewRequest(method, "http://x"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.svc.Classify(req, []byte(sent)); c.Name != "eks:"+operation {
		t.Fatalf("%s %s is taken for %s", method, path, c.Name)
	}
	status, header, got := r.send(t, method, path, sent)
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, status, got)
	}
	if ct := header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %s", ct)
	}
	_, want := wiretest.SnapshotBody(t, "eks", "response_snapshot/"+operation+".response.snap")
	wiretest.SameJSON(t, got, want, "tags", "labels", "additionalInfo")
}

func TestWireFormAgainstTheSnapshots(t *testing.T) {
	r := newRig(t, nil)
	list, _ := r.versions(t, "coredns", "1.31")
	update, err := r.raise(t, "1.32", token)
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Step(10 * time.Minute)
	r.refresh(t)
	for operation, replace := range map[string][]string{
		"ListClusters":            nil,
		"DescribeCluster":         nil,
		"DescribeClusterVersions": {"__Member__", "1.32", "defaultOnly=true", "defaultOnly=false", "UNSUPPORTED", "EXTENDED_SUPPORT"},
		"UpdateClusterVersion":    {"__Version__", "1.33"},
		"DescribeUpdate":          {"addonName=__AddonName__&capabilityName=__CapabilityName__&nodegroupName=__NodegroupName__", ""},
		"ListUpdates":             {"addonName=__AddonName__&capabilityName=__CapabilityName__&", "", "nodegroupName=__NodegroupName__", ""},
		"ListAddons":              nil,
		"DescribeAddon":           nil,
		"DescribeAddonVersions":   nil,
		"UpdateAddon":             nil,
		"ListFargateProfiles":     nil,
		"DescribeFargateProfile":  nil,
		"ListNodegroups":          nil,
		"ListInsights":            {"__Member__", "1.33"},
		"DescribeInsight":         nil,
		"StartInsightsRefresh":    nil,
		"DescribeInsightsRefresh": nil,
	} {
		t.Run(operation, func(t *testing.T) {
			var insight string
			for _, i := range r.insights(t, nil) {
				insight = *i.Id
			}
			names := append(replace, "__Id__", insight, "__ClientRequestToken__", operation, "__Name__", "blue", "__ClusterName__", "blue", "__AddonName__", "coredns",
				"__AddonVersion__", list[0], "__KubernetesVersion__", "1.31", "__UpdateId__", *update.Id, "__FargateProfileName__", "shop",
				"__NextToken__", "", "__ConfigurationValues__", "{}")
			r.speaks(t, operation, names...)
			// An update in the way of the next operation.
			r.clock.Step(10 * time.Minute)
		})
	}
}

func TestErrorsHaveTheirTypeInTheHeaderAndTheirMembers(t *testing.T) {
	for exception, want := range map[string]int{
		"ResourceNotFoundException": 404, "InvalidParameterException": 400, "InvalidRequestException": 400, "ResourceInUseException": 409,
		"ClientException": 400, "ServerException": 500, "InvalidStateException": 400, "ThrottlingException": 429,
		"ServiceUnavailableException": 503, "AccessDeniedException": 403, "ResourceLimitExceededException": 400,
	} {
		t.Run(exception, func(t *testing.T) {
			r := newRig(t, nil)
			if err := r.srv.Faults.Add(wire.Fault{Call: "eks:DescribeCluster", Error: exception, Message: "words"}); err != nil {
				t.Fatal(err)
			}
			_, err := r.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: aws.String("blue")})
			if wiretest.Code(err) != exception || message(err) != "words" {
				t.Errorf("the SDK reads %v", err)
			}
			got := r.srv.Last()
			if got.Status != want || got.Header.Get("X-Amzn-Errortype") != exception {
				t.Errorf("status %d, type %s", got.Status, got.Header.Get("X-Amzn-Errortype"))
			}
			var members, model map[string]any
			if err := json.Unmarshal(got.Response, &members); err != nil {
				t.Fatal(err)
			}
			_, snap := wiretest.SnapshotBody(t, "eks", "response_snapshot/"+exception+".error.snap")
			if err := json.Unmarshal(snap, &model); err != nil {
				t.Fatal(err)
			}
			delete(model, "__type") // EKS sends the type in the header alone
			for name := range model {
				if _, ok := members[name]; !ok {
					t.Errorf("member %s is missing in %s", name, got.Response)
				}
			}
			wiretest.SameJSON(t, got.Response, snap)
		})
	}
}

func TestTimesAreEpochsWithMilliseconds(t *testing.T) {
	r := newRig(t, nil)
	r.clock.SetTime(start.Add(374 * time.Millisecond))
	u, err := r.raise(t, "1.32", token)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(r.srv.Last().Response, []byte(`"createdAt":1796040000.374`)) {
		t.Errorf("sent %s", r.srv.Last().Response)
	}
	if !u.CreatedAt.Equal(start.Add(374 * time.Millisecond)) {
		t.Errorf("read %s", u.CreatedAt)
	}
}

func TestDescribeClusterAsSeeded(t *testing.T) {
	r := newRig(t, nil)
	created := time.Date(2025, 8, 8, 12, 57, 45, 810_000_000, time.UTC)
	err := r.svc.AddCluster(eks.Cluster{
		Name: "green", Version: "1.32", CreatedAt: created, SupportType: "STANDARD", VPC: "vpc-1", Subnets: []string{"subnet-1"},
		SecurityGroups: []string{"sg-1"}, RoleARN: "role", OIDCIssuer: "https://issuer", Tags: map[string]string{"a": "b"},
		Issues: []eks.Issue{{Code: "Ec2SubnetNotFound", Message: "gone", ResourceIDs: []string{"subnet-1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.svc.SetEndpoint("green", "https://127.0.0.1:1", []byte("CA")); err != nil {
		t.Fatal(err)
	}
	out, err := r.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: aws.String("green")})
	if err != nil {
		t.Fatal(err)
	}
	c := out.Cluster
	type view struct {
		Name, ARN, Version, Endpoint, CA, Role, Issuer, VPC, Support, Platform, Issue string
		Created                                                                       time.Time
		Subnets                                                                       []string
		Tags                                                                          map[string]string
	}
	got := view{
		*c.Name, *c.Arn, *c.Version, *c.Endpoint, *c.CertificateAuthority.Data, *c.RoleArn, *c.Identity.Oidc.Issuer,
		*c.ResourcesVpcConfig.VpcId, string(c.UpgradePolicy.SupportType), *c.PlatformVersion, string(c.Health.Issues[0].Code),
		c.CreatedAt.UTC(), c.ResourcesVpcConfig.SubnetIds, c.Tags,
	}
	want := view{
		"green", "arn:aws:eks:eu-west-1:111122223333:cluster/green", "1.32", "https://127.0.0.1:1", "Q0E=", "role", "https://issuer",
		"vpc-1", "STANDARD", "eks.46", "Ec2SubnetNotFound", created, []string{"subnet-1"}, map[string]string{"a": "b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, seed := range map[string]eks.Cluster{
		"twice": {Name: "green", Version: "1.32"}, "no name": {Version: "1.32"}, "version": {Name: "x", Version: "1.2"},
		"add-on": {Name: "x", Version: "1.32", Addons: []eks.Addon{{Name: "nonesuch"}}},
	} {
		if err := r.svc.AddCluster(seed); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

func TestDescribeFargateProfile(t *testing.T) {
	r := newRig(t, nil)
	out, err := r.DescribeFargateProfile(t.Context(), &awseks.DescribeFargateProfileInput{ClusterName: aws.String("blue"), FargateProfileName: aws.String("shop")})
	if err != nil {
		t.Fatal(err)
	}
	p := out.FargateProfile
	if p.Status != types.FargateProfileStatusActive || *p.Selectors[0].Namespace != "shop" || p.Selectors[0].Labels["tier"] != "web" || len(p.Subnets) != 2 {
		t.Errorf("it is %+v", p)
	}
	_, err = r.DescribeFargateProfile(t.Context(), &awseks.DescribeFargateProfileInput{ClusterName: aws.String("blue"), FargateProfileName: aws.String("none")})
	if wiretest.Code(err) != "ResourceNotFoundException" {
		t.Errorf("unknown: %v", err)
	}
}

func TestDescribeClusterVersions(t *testing.T) {
	r := newRig(t, func(o *eks.Options) {
		o.Versions = append(eks.Catalogue(), eks.Version{Minor: "1.23", Patch: "1.23.17", Platform: "eks.1", Status: eks.Unsupported})
	})
	get := func(in awseks.DescribeClusterVersionsInput) (minors []string) {
		t.Helper()
		pages := awseks.NewDescribeClusterVersionsPaginator(r, &in)
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range page.ClusterVersions {
				minors = append(minors, *v.ClusterVersion)
			}
		}
		return minors
	}
	all := get(awseks.DescribeClusterVersionsInput{MaxResults: aws.Int32(5)})
	if len(all) != 12 || all[0] != "1.35" || all[11] != "1.24" {
		t.Errorf("on offer: %v", all)
	}
	for name, tt := range map[string]struct {
		in   awseks.DescribeClusterVersionsInput
		want []string
	}{
		"default":     {awseks.DescribeClusterVersionsInput{DefaultOnly: aws.Bool(true)}, []string{"1.35"}},
		"standard":    {awseks.DescribeClusterVersionsInput{VersionStatus: types.VersionStatusStandardSupport}, []string{"1.35", "1.34"}},
		"some":        {awseks.DescribeClusterVersionsInput{ClusterVersions: []string{"1.26", "1.25"}}, []string{"1.26", "1.25"}},
		"unsupported": {awseks.DescribeClusterVersionsInput{VersionStatus: types.VersionStatusUnsupported}, []string{"1.23"}},
	} {
		if got := get(tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if got := get(awseks.DescribeClusterVersionsInput{IncludeAll: aws.Bool(true)}); len(got) != 13 {
		t.Errorf("all of them: %v", got)
	}
	out, err := r.DescribeClusterVersions(t.Context(), &awseks.DescribeClusterVersionsInput{ClusterVersions: []string{"1.34"}})
	if err != nil {
		t.Fatal(err)
	}
	v := out.ClusterVersions[0]
	if v.EndOfStandardSupportDate.Format(time.DateOnly) != "2026-12-02" || v.VersionStatus != types.VersionStatusStandardSupport ||
		!strings.HasPrefix(*v.KubernetesPatchVersion, "1.34.") {
		t.Errorf("1.34 is %+v", v)
	}
}

func TestWhatTheSandboxDoesNotHave(t *testing.T) {
	r := newRig(t, nil)
	_, err := r.DeleteNodegroup(t.Context(), &awseks.DeleteNodegroupInput{ClusterName: aws.String("blue"), NodegroupName: aws.String("workers")})
	if wiretest.Code(err) != "UnknownOperationException" {
		t.Errorf("got %v", err)
	}
}
