package eks_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func (r *rig) addon(t *testing.T, name string) *types.Addon {
	t.Helper()
	out, err := r.DescribeAddon(t.Context(), &awseks.DescribeAddonInput{ClusterName: aws.String("blue"), AddonName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return out.Addon
}

// versions are what is offered of an add-on for a minor, and which is the default.
func (r *rig) versions(t *testing.T, name, minor string) (list []string, def string) {
	t.Helper()
	out, err := r.DescribeAddonVersions(t.Context(), &awseks.DescribeAddonVersionsInput{AddonName: &name, KubernetesVersion: &minor})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range out.Addons[0].AddonVersions {
		list = append(list, *v.AddonVersion)
		for _, c := range v.Compatibilities {
			if *c.ClusterVersion == minor && c.DefaultVersion {
				def = *v.AddonVersion
			}
		}
	}
	return list, def
}

func TestAnAddonUpdateTakesItsTime(t *testing.T) {
	r := newRig(t, nil)
	list, _ := r.versions(t, "coredns", "1.31")
	in := &awseks.UpdateAddonInput{
		ClusterName: aws.String("blue"), AddonName: aws.String("coredns"), AddonVersion: &list[0],
		ResolveConflicts: types.ResolveConflictsPreserve, ClientRequestToken: aws.String(token),
		ConfigurationValues: aws.String(`{"computeType":"Fargate"}`),
	}
	out, err := r.UpdateAddon(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if out.Update.Type != types.UpdateTypeAddonUpdate || out.Update.Status != types.UpdateStatusInProgress {
		t.Errorf("accepted as %+v", out.Update)
	}
	if a := r.addon(t, "coredns"); a.Status != types.AddonStatusUpdating || *a.AddonVersion == list[0] {
		t.Errorf("meanwhile %s at %s", a.Status, *a.AddonVersion)
	}
	again, err := r.UpdateAddon(t.Context(), in)
	if err != nil || *again.Update.Id != *out.Update.Id {
		t.Errorf("the same again: %v %v", again, err)
	}
	in.ClientRequestToken = aws.String("another-token-another-token-another-to")
	if _, err = r.UpdateAddon(t.Context(), in); wiretest.Code(err) != "ResourceInUseException" ||
		message(err) != "Addon coredns cannot be updated as it is currently in UPDATING state" {
		t.Errorf("another meanwhile: %v", err)
	}
	r.clock.Step(time.Minute)
	a := r.addon(t, "coredns")
	if a.Status != types.AddonStatusActive || *a.AddonVersion != list[0] || *a.ConfigurationValues != `{"computeType":"Fargate"}` ||
		!a.ModifiedAt.Equal(start.Add(time.Minute)) {
		t.Errorf("afterwards %+v", a)
	}
	if u := r.update(t, *out.Update.Id, "coredns"); u.Status != types.UpdateStatusSuccessful {
		t.Errorf("the update is %s", u.Status)
	}
	if heard := r.heard(); !slices.Equal(heard, []string{"blue coredns " + list[0]}) {
		t.Errorf("told %v", heard)
	}
	updates, err := r.ListUpdates(t.Context(), &awseks.ListUpdatesInput{Name: aws.String("blue"), AddonName: aws.String("coredns")})
	if err != nil || !slices.Equal(updates.UpdateIds, []string{*out.Update.Id}) {
		t.Errorf("its updates are %v, %v", updates, err)
	}
	if updates, err = r.ListUpdates(t.Context(), &awseks.ListUpdatesInput{Name: aws.String("blue")}); err != nil || len(updates.UpdateIds) != 0 {
		t.Errorf("those of the control plane are %v, %v", updates, err)
	}
}

func TestAddonUpdatesThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		in   awseks.UpdateAddonInput
		code string
	}{
		"unknown cluster": {awseks.UpdateAddonInput{ClusterName: aws.String("red"), AddonName: aws.String("coredns")}, "ResourceNotFoundException"},
		"unknown add-on":  {awseks.UpdateAddonInput{ClusterName: aws.String("blue"), AddonName: aws.String("vpc-cni")}, "ResourceNotFoundException"},
		"unknown version": {awseks.UpdateAddonInput{ClusterName: aws.String("blue"), AddonName: aws.String("coredns"),
			AddonVersion: aws.String("v9.9.9-eksbuild.1")}, "InvalidParameterException"},
		"version of another minor": {awseks.UpdateAddonInput{ClusterName: aws.String("blue"), AddonName: aws.String("kube-proxy"),
			AddonVersion: aws.String("v1.32.11-eksbuild.2")}, "InvalidParameterException"},
		"conflicts": {awseks.UpdateAddonInput{ClusterName: aws.String("blue"), AddonName: aws.String("coredns"),
			ResolveConflicts: "MAYBE"}, "InvalidParameterException"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newRig(t, nil).UpdateAddon(t.Context(), &tt.in); wiretest.Code(err) != tt.code {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAnAddonUpdateThatFails(t *testing.T) {
	r := newRig(t, nil)
	err := r.svc.FailUpdates(eks.Failure{Cluster: "blue", Addon: "coredns", Errors: []eks.UpdateError{
		{Code: "ConfigurationConflict", Message: "conflicts found"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	before := *r.addon(t, "coredns").AddonVersion
	list, _ := r.versions(t, "coredns", "1.31")
	in := &awseks.UpdateAddonInput{ClusterName: aws.String("blue"), AddonName: aws.String("coredns"), AddonVersion: &list[0]}
	if _, err := r.UpdateAddon(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Minute)
	a := r.addon(t, "coredns")
	if a.Status != types.AddonStatusUpdateFailed || *a.AddonVersion != before || len(a.Health.Issues) != 1 || a.Health.Issues[0].Code != "ConfigurationConflict" {
		t.Errorf("it is %+v", a)
	}
	in.ClientRequestToken = nil
	if _, err := r.UpdateAddon(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Minute)
	if a = r.addon(t, "coredns"); a.Status != types.AddonStatusActive || len(a.Health.Issues) != 0 {
		t.Errorf("after the second attempt it is %+v", a)
	}
}

// An empty list of associations deletes them; none at all leaves them. The SDK sends
// the difference, and a tool has to mind it.
func TestPodIdentityAssociationsOfAnAddon(t *testing.T) {
	r := newRig(t, nil)
	err := r.svc.AddCluster(eks.Cluster{Name: "green", Version: "1.31", Addons: []eks.Addon{
		{Name: "vpc-cni", PodIdentity: []string{"arn:aws:eks:eu-west-1:111122223333:podidentityassociation/green/a-1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		send []types.AddonPodIdentityAssociations
		want int
	}{
		{nil, 1},
		{[]types.AddonPodIdentityAssociations{}, 0},
		{[]types.AddonPodIdentityAssociations{{RoleArn: aws.String("arn"), ServiceAccount: aws.String("aws-node")}}, 1},
	} {
		_, err := r.UpdateAddon(t.Context(), &awseks.UpdateAddonInput{
			ClusterName: aws.String("green"), AddonName: aws.String("vpc-cni"), PodIdentityAssociations: tt.send,
		})
		if err != nil {
			t.Fatal(err)
		}
		r.clock.Step(time.Minute)
		out, err := r.DescribeAddon(t.Context(), &awseks.DescribeAddonInput{ClusterName: aws.String("green"), AddonName: aws.String("vpc-cni")})
		if err != nil || len(out.Addon.PodIdentityAssociations) != tt.want {
			t.Errorf("after %v: %v, %v", tt.send, out.Addon.PodIdentityAssociations, err)
		}
	}
}

// Every hop of the catalogue has to be passable: from each minor to the next there
// is a version of each add-on that supports both, and a default.
func TestAddonVersionsLeadFromMinorToMinor(t *testing.T) {
	r := newRig(t, nil)
	catalogue := eks.Catalogue()
	for i, v := range catalogue {
		for _, name := range []string{"coredns", "kube-proxy", "vpc-cni"} {
			list, def := r.versions(t, name, v.Minor)
			if len(list) == 0 || !slices.Contains(list, def) {
				t.Errorf("%s for %s: %v, default %q", name, v.Minor, list, def)
			}
			if i+1 == len(catalogue) {
				continue
			}
			next, _ := r.versions(t, name, catalogue[i+1].Minor)
			if !slices.ContainsFunc(list, func(v string) bool { return slices.Contains(next, v) }) {
				t.Errorf("no %s supports both %s and %s", name, v.Minor, catalogue[i+1].Minor)
			}
		}
		list, _ := r.versions(t, "kube-proxy", v.Minor)
		for _, a := range list {
			if own := "v" + v.Minor + "."; !strings.HasPrefix(a, own) && i > 0 && !strings.HasPrefix(a, "v"+catalogue[i-1].Minor+".") {
				t.Errorf("kube-proxy %s is offered for %s", a, v.Minor)
			}
		}
	}
}

func TestCompatibilitiesAreOfTheMinorAskedFor(t *testing.T) {
	r := newRig(t, nil)
	for minor, want := range map[string]string{"1.32": "1.32", "": "1.33 1.32"} {
		in := &awseks.DescribeAddonVersionsInput{AddonName: aws.String("kube-proxy")}
		if minor != "" {
			in.KubernetesVersion = &minor
		}
		out, err := r.DescribeAddonVersions(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range out.Addons[0].AddonVersions {
			if *v.AddonVersion != "v1.32.11-eksbuild.2" {
				continue
			}
			var got []string
			for _, c := range v.Compatibilities {
				got = append(got, *c.ClusterVersion)
			}
			if strings.Join(got, " ") != want || !slices.Equal(v.ComputeTypes, []string{"ec2", "hybrid"}) {
				t.Errorf("for %q: %v on %v", minor, got, v.ComputeTypes)
			}
		}
	}
}

func TestDescribeAddonVersionsOfAll(t *testing.T) {
	r := newRig(t, nil)
	names := []string{}
	pages := awseks.NewDescribeAddonVersionsPaginator(r, &awseks.DescribeAddonVersionsInput{MaxResults: aws.Int32(2)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range page.Addons {
			names = append(names, *a.AddonName)
		}
	}
	if !slices.Equal(names, []string{"coredns", "kube-proxy", "vpc-cni"}) {
		t.Errorf("got %v", names)
	}
	_, err := r.DescribeAddonVersions(t.Context(), &awseks.DescribeAddonVersionsInput{AddonName: aws.String("nonesuch")})
	if wiretest.Code(err) != "ResourceNotFoundException" {
		t.Errorf("unknown add-on: %v", err)
	}
	_, err = r.DescribeAddonVersions(t.Context(), &awseks.DescribeAddonVersionsInput{KubernetesVersion: aws.String("1.99")})
	if wiretest.Code(err) != "InvalidParameterException" {
		t.Errorf("unknown minor: %v", err)
	}
}

func TestSnapshotIsWithoutIDsAndTimes(t *testing.T) {
	see := func(wait time.Duration) string {
		r := newRig(t, nil)
		r.clock.Step(wait)
		if _, err := r.raise(t, "1.32", token); err != nil {
			t.Fatal(err)
		}
		r.clock.Step(10 * time.Minute)
		r.cluster(t)
		b, err := json.Marshal(r.svc.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	a, b := see(0), see(time.Hour)
	if a != b {
		t.Errorf("two like worlds differ:\n%s\n%s", a, b)
	}
	for _, want := range []string{`"version":"1.32"`, `"status":"ACTIVE"`, `"target":"1.32","status":"Successful"`, `"kube-proxy"`} {
		if !strings.Contains(a, want) {
			t.Errorf("no %s in %s", want, a)
		}
	}
}
