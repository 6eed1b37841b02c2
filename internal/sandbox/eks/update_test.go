package eks_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

const token = "0b5f3a52-6c0e-4d4a-9a55-1f6f3f1c7d10"

func TestAnUpdateTakesItsTimeAndThenTheVersionIsAnother(t *testing.T) {
	r := newRig(t, nil)
	u, err := r.raise(t, "1.32", token)
	if err != nil {
		t.Fatal(err)
	}
	if u.Status != types.UpdateStatusInProgress || u.Type != types.UpdateTypeVersionUpdate || !u.CreatedAt.Equal(start) || len(u.Errors) != 0 {
		t.Errorf("accepted as %+v", u)
	}
	got := map[string]string{}
	for _, p := range u.Params {
		got[string(p.Type)] = aws.ToString(p.Value)
	}
	if got["Version"] != "1.32" || !strings.HasPrefix(got["PlatformVersion"], "eks.") {
		t.Errorf("params are %v", got)
	}

	for _, at := range []struct {
		after    time.Duration
		status   types.ClusterStatus
		version  string
		progress types.UpdateStatus
	}{
		{0, types.ClusterStatusActive, "1.31", types.UpdateStatusInProgress}, // stale
		{5 * time.Second, types.ClusterStatusUpdating, "1.31", types.UpdateStatusInProgress},
		{9*time.Minute + 59*time.Second, types.ClusterStatusUpdating, "1.31", types.UpdateStatusInProgress},
		{10 * time.Minute, types.ClusterStatusActive, "1.32", types.UpdateStatusSuccessful},
	} {
		r.clock.SetTime(start.Add(at.after))
		u, c := r.update(t, *u.Id, ""), r.cluster(t)
		if c.Status != at.status || aws.ToString(c.Version) != at.version || u.Status != at.progress {
			t.Errorf("after %s: %s at %s, update %s", at.after, c.Status, aws.ToString(c.Version), u.Status)
		}
	}
	if heard := r.heard(); !slices.Equal(heard, []string{"blue 1.32"}) {
		t.Errorf("told %v", heard)
	}
	if r.svc.Version("blue") != "1.32" {
		t.Errorf("Version is %s", r.svc.Version("blue"))
	}
}

// The callback comes by itself, with nobody asking.
func TestOnVersionNeedsNoRequest(t *testing.T) {
	told := make(chan string, 1)
	r := newRig(t, func(o *eks.Options) { o.OnVersion = func(cluster, minor string) { told <- cluster + " " + minor } })
	if _, err := r.raise(t, "1.32", token); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(10 * time.Minute)
	if got := <-told; got != "blue 1.32" {
		t.Errorf("told %s", got)
	}
}

// Somebody else's update is over at once, and is told like any other.
func TestRaise(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		cluster, version, want string
	}{
		{"red", "1.32", "no such cluster"}, {"blue", "1.99", "not in the catalogue"}, {"blue", "1.32", ""},
	} {
		err := r.svc.Raise(c.cluster, c.version)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v", c.cluster, c.version, err)
		}
	}
	if v := aws.ToString(r.cluster(t).Version); v != "1.32" {
		t.Errorf("the cluster is at %s", v)
	}
	if heard := r.heard(); !slices.Equal(heard, []string{"blue 1.32"}) {
		t.Errorf("told %v", heard)
	}
	if _, err := r.raise(t, "1.33", token); err != nil {
		t.Fatal(err)
	}
	if err := r.svc.Raise("blue", "1.33"); err == nil {
		t.Error("it was raised under an update")
	}
}

func TestUpdatesThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		cluster, version, code, message string
	}{
		"two minors":      {"blue", "1.33", "InvalidParameterException", "Unsupported Kubernetes minor version update from 1.31 to 1.33"},
		"the same":        {"blue", "1.31", "InvalidParameterException", "Unsupported Kubernetes minor version update from 1.31 to 1.31"},
		"backwards":       {"blue", "1.30", "InvalidParameterException", "Unsupported Kubernetes minor version update from 1.31 to 1.30"},
		"not offered":     {"blue", "1.99", "InvalidParameterException", "unsupported Kubernetes version"},
		"not a version":   {"blue", "latest", "InvalidParameterException", "unsupported Kubernetes version"},
		"with a patch":    {"blue", "1.32.1", "InvalidParameterException", "unsupported Kubernetes version"},
		"unknown cluster": {"red", "1.32", "ResourceNotFoundException", "No cluster found for name: red."},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			_, err := r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{Name: &tt.cluster, Version: &tt.version})
			if wiretest.Code(err) != tt.code || message(err) != tt.message {
				t.Errorf("got %v", err)
			}
			if v := aws.ToString(r.cluster(t).Version); v != "1.31" {
				t.Errorf("the cluster is at %s", v)
			}
		})
	}
}

func TestAVersionThatIsNotSupportedAnyMoreIsNotOffered(t *testing.T) {
	r := newRig(t, func(o *eks.Options) {
		o.Versions = eks.Catalogue()
		for i := range o.Versions {
			if o.Versions[i].Minor == "1.32" {
				o.Versions[i].Status = eks.Unsupported
			}
		}
	})
	if _, err := r.raise(t, "1.32", token); message(err) != "unsupported Kubernetes version" {
		t.Errorf("got %v", err)
	}
}

func TestOneUpdateAtATime(t *testing.T) {
	r := newRig(t, nil)
	u, err := r.raise(t, "1.32", token)
	if err != nil {
		t.Fatal(err)
	}
	// Refused from the first moment on, although the cluster still reads ACTIVE.
	_, err = r.raise(t, "1.32", "another-token-another-token-another-to")
	want := fmt.Sprintf("Cannot VersionUpdate because cluster blue currently has update %s in progress", *u.Id)
	if wiretest.Code(err) != "ResourceInUseException" || message(err) != want || r.srv.Last().Status != http.StatusConflict {
		t.Errorf("got %v, status %d", err, r.srv.Last().Status)
	}
	_, err = r.UpdateAddon(t.Context(), &awseks.UpdateAddonInput{ClusterName: aws.String("blue"), AddonName: aws.String("coredns")})
	if wiretest.Code(err) != "ResourceInUseException" {
		t.Errorf("an add-on meanwhile: %v", err)
	}
	r.clock.Step(10 * time.Minute)
	if _, err = r.raise(t, "1.33", "another-token-another-token-another-to"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestAClientTokenStandsForOneRequest(t *testing.T) {
	r := newRig(t, nil)
	first, err := r.raise(t, "1.32", token)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.raise(t, "1.32", token)
	if err != nil || *again.Id != *first.Id {
		t.Fatalf("again: %v %v", again, err)
	}
	if !strings.Contains(r.srv.Log.String(), `"replay":true`) {
		t.Error("the log does not tell the replay")
	}
	if _, err = r.raise(t, "1.33", token); wiretest.Code(err) != "InvalidParameterException" {
		t.Errorf("with another version: %v", err)
	}
	r.clock.Step(10 * time.Minute)
	done, err := r.raise(t, "1.32", token)
	if err != nil || *done.Id != *first.Id || done.Status != types.UpdateStatusSuccessful {
		t.Errorf("after its end: %v %v", done, err)
	}
	list, err := r.ListUpdates(t.Context(), &awseks.ListUpdatesInput{Name: aws.String("blue")})
	if err != nil || !slices.Equal(list.UpdateIds, []string{*first.Id}) {
		t.Errorf("updates are %v, %v", list, err)
	}
}

// A token of a request that was refused starts nothing and may be sent again.
func TestATokenOfARefusedRequestIsFree(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.raise(t, "1.33", token); err == nil {
		t.Fatal("two minors were accepted")
	}
	if _, err := r.raise(t, "1.32", token); err != nil {
		t.Error(err)
	}
}

func TestFargateKubeletsThatLagBehind(t *testing.T) {
	const refusal = "Kubelet version of Fargate pods must be updated to match cluster version 1.31 before updating cluster version; " +
		"Please recycle all offending pod replicas"
	for name, tt := range map[string]struct {
		mode     string
		kubelets []string
		refused  bool
	}{
		"none":                     {eks.SkewByVersion, nil, false},
		"level":                    {eks.SkewByVersion, []string{"v1.31.14-eks-6ae7ca2"}, false},
		"an older patch":           {eks.SkewStrict, []string{"v1.31.2-eks-6ae7ca2"}, false},
		"within the skew":          {eks.SkewByVersion, []string{"v1.31.14-eks-1", "v1.29.9-eks-1"}, false},
		"outside the skew":         {eks.SkewByVersion, []string{"v1.31.14-eks-1", "v1.28.9-eks-1"}, true},
		"strict, one behind":       {eks.SkewStrict, []string{"v1.31.14-eks-1", "v1.30.9-eks-1"}, true},
		"strict, level":            {eks.SkewStrict, []string{"1.31"}, false},
		"what is no version":       {eks.SkewStrict, []string{""}, false},
		"three behind the target":  {eks.SkewByVersion, []string{"v1.29.9-eks-1"}, false},
		"the default is the skew":  {"", []string{"v1.30.9-eks-1"}, false},
		"the default has its edge": {"", []string{"v1.28.9-eks-1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *eks.Options) { o.Skew = tt.mode })
			r.setKubelets(tt.kubelets...)
			_, err := r.raise(t, "1.32", token)
			if tt.refused && (wiretest.Code(err) != "InvalidRequestException" || message(err) != refusal) || !tt.refused && err != nil {
				t.Errorf("got %v", err)
			}
			r.setKubelets("v1.31.14-eks-1")
			if _, err := r.raise(t, "1.32", token); err != nil {
				t.Errorf("after a restart, with the same token: %v", err)
			}
		})
	}
}

// Kubelets from before 1.25 may be two minors behind, not three.
func TestTheSkewOfOldKubelets(t *testing.T) {
	for kubelet, refused := range map[string]bool{"v1.25.16-eks-1": false, "v1.24.17-eks-1": true} {
		r := newRig(t, nil)
		if err := r.svc.AddCluster(eks.Cluster{Name: "old", Version: "1.26"}); err != nil {
			t.Fatal(err)
		}
		r.setKubelets(kubelet)
		_, err := r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{Name: aws.String("old"), Version: aws.String("1.27")})
		if refused != (wiretest.Code(err) == "InvalidRequestException") {
			t.Errorf("%s: %v", kubelet, err)
		}
	}
}

func TestAnUpdateThatFailsLeavesTheVersion(t *testing.T) {
	r := newRig(t, nil)
	err := r.svc.FailUpdates(eks.Failure{Cluster: "blue", Version: "1.32", Errors: []eks.UpdateError{
		{Code: "InsufficientFreeAddresses", Message: "subnets are full", ResourceIDs: []string{"subnet-1", "subnet-2"}},
		{Code: "IpNotAvailable", Message: "none left"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := r.raise(t, "1.32", token)
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Step(10 * time.Minute)
	u = r.update(t, *u.Id, "")
	if u.Status != types.UpdateStatusFailed || len(u.Errors) != 2 || u.Errors[0].ErrorCode != types.ErrorCodeInsufficientFreeAddresses ||
		aws.ToString(u.Errors[0].ErrorMessage) != "subnets are full" || !slices.Equal(u.Errors[0].ResourceIds, []string{"subnet-1", "subnet-2"}) {
		t.Errorf("ended as %+v", u)
	}
	if c := r.cluster(t); c.Status != types.ClusterStatusActive || *c.Version != "1.31" {
		t.Errorf("the cluster is %s at %s", c.Status, *c.Version)
	}
	if len(r.heard()) != 0 {
		t.Errorf("told %v", r.heard())
	}
	// The next attempt goes well.
	u, err = r.raise(t, "1.32", "another-token-another-token-another-to")
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Step(10 * time.Minute)
	if u = r.update(t, *u.Id, ""); u.Status != types.UpdateStatusSuccessful {
		t.Errorf("the second ended as %s", u.Status)
	}
	if err := r.svc.FailUpdates(eks.Failure{Cluster: "red"}); err == nil {
		t.Error("failures of an unknown cluster were taken")
	}
}

func TestReadinessIsEnforcedOnlyWhenAskedTo(t *testing.T) {
	bad := eks.Insight{Name: "Deprecated APIs removed in Kubernetes v1.32", Version: "1.32", Status: "ERROR"}
	for _, enforce := range []bool{false, true} {
		r := newRig(t, func(o *eks.Options) { o.EnforceInsights = enforce })
		if err := r.svc.SetInsight("blue", bad); err != nil {
			t.Fatal(err)
		}
		_, err := r.raise(t, "1.32", token)
		if enforce != (wiretest.Code(err) == "InvalidStateException") {
			t.Errorf("enforced %t: %v", enforce, err)
		}
		if !enforce {
			continue
		}
		_, err = r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{Name: aws.String("blue"), Version: aws.String("1.32"), Force: true})
		if err != nil {
			t.Errorf("forced: %v", err)
		}
	}
}

func TestDescribeUpdateWantsToKnowOfWhat(t *testing.T) {
	r := newRig(t, nil)
	out, err := r.UpdateAddon(t.Context(), &awseks.UpdateAddonInput{ClusterName: aws.String("blue"), AddonName: aws.String("coredns")})
	if err != nil {
		t.Fatal(err)
	}
	id := *out.Update.Id
	for _, tt := range []struct{ id, addon, group, code string }{
		{id, "coredns", "", ""},
		{id, "", "", "ResourceNotFoundException"},
		{id, "kube-proxy", "", "ResourceNotFoundException"},
		{id, "", "workers", "ResourceNotFoundException"},
		{"no-such-update", "", "", "ResourceNotFoundException"},
	} {
		in := &awseks.DescribeUpdateInput{Name: aws.String("blue"), UpdateId: &tt.id}
		if tt.addon != "" {
			in.AddonName = &tt.addon
		}
		if tt.group != "" {
			in.NodegroupName = &tt.group
		}
		if _, err := r.DescribeUpdate(t.Context(), in); wiretest.Code(err) != tt.code {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestListUpdatesComesInPages(t *testing.T) {
	r := newRig(t, nil)
	want := map[string]bool{}
	for i := range 3 {
		u, err := r.raise(t, fmt.Sprintf("1.%d", 32+i), fmt.Sprintf("token-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		want[*u.Id] = true
		r.clock.Step(10 * time.Minute)
		r.setKubelets(fmt.Sprintf("1.%d", 32+i))
	}
	pages := awseks.NewListUpdatesPaginator(r, &awseks.ListUpdatesInput{Name: aws.String("blue"), MaxResults: aws.Int32(2)})
	n := 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n++
		for _, id := range page.UpdateIds {
			delete(want, id)
		}
	}
	if n != 2 || len(want) != 0 {
		t.Errorf("%d pages, missing %v", n, want)
	}
	_, err := r.ListUpdates(t.Context(), &awseks.ListUpdatesInput{Name: aws.String("blue"), NextToken: aws.String("garbage")})
	if wiretest.Code(err) != "InvalidParameterException" {
		t.Errorf("a wrong token: %v", err)
	}
}

func TestWhoMayCall(t *testing.T) {
	keys := wire.NewKeys()
	keys.Add(wire.Key{AccessKey: "ASIAOLD", Secret: "x", SessionToken: "t", Expires: time.Now().Add(-time.Minute)})
	r := newRig(t, func(o *eks.Options) { o.Keys = keys })
	for name, tt := range map[string]struct {
		creds aws.CredentialsProvider
		code  string
	}{
		"unknown":      {credentials.NewStaticCredentialsProvider("AKIDNOBODY", "x", ""), "UnrecognizedClientException"},
		"wrong secret": {credentials.NewStaticCredentialsProvider(wire.AccessKey, "x", ""), "InvalidSignatureException"},
		"expired":      {credentials.NewStaticCredentialsProvider("ASIAOLD", "x", "t"), "ExpiredTokenException"},
	} {
		cfg := r.srv.Config()
		cfg.Credentials = tt.creds
		_, err := awseks.NewFromConfig(cfg).ListClusters(t.Context(), nil)
		if wiretest.Code(err) != tt.code || r.srv.Last().Status != http.StatusForbidden {
			t.Errorf("%s: %v, status %d", name, err, r.srv.Last().Status)
		}
	}
}
