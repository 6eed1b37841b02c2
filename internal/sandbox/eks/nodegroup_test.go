package eks_test

import (
	"context"
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

var workers = eks.Nodegroup{Name: "workers", Min: 1, Max: 4, Desired: 2}

// behind is a group that runs the minor before the cluster's.
var behind = eks.Nodegroup{Name: "workers", Version: "1.31", Min: 1, Max: 4, Desired: 2}

var custom = eks.Nodegroup{Name: "own", AMIType: "CUSTOM", Max: 2, Template: &eks.LaunchTemplate{
	ID: "lt-1", Name: "own", Version: "1", Kubelets: map[string]string{"1": "1.31", "2": "1.32", "3": "1.33"},
}}

func (r *rig) group(t *testing.T, name string) *types.Nodegroup {
	t.Helper()
	out, err := r.DescribeNodegroup(t.Context(), &awseks.DescribeNodegroupInput{ClusterName: aws.String("green"), NodegroupName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return out.Nodegroup
}

func (r *rig) raiseGroup(t *testing.T, in awseks.UpdateNodegroupVersionInput) (*types.Update, error) {
	t.Helper()
	in.ClusterName = aws.String("green")
	out, err := r.UpdateNodegroupVersion(t.Context(), &in)
	if err != nil {
		return nil, err
	}
	return out.Update, nil
}

func (r *rig) groupUpdate(t *testing.T, group, id string) *types.Update {
	t.Helper()
	out, err := r.DescribeUpdate(t.Context(), &awseks.DescribeUpdateInput{Name: aws.String("green"), UpdateId: &id, NodegroupName: &group})
	if err != nil {
		t.Fatal(err)
	}
	return out.Update
}

func params(u *types.Update) map[string]string {
	got := map[string]string{}
	for _, p := range u.Params {
		got[string(p.Type)] = aws.ToString(p.Value)
	}
	return got
}

func TestANodegroupFollowsItsCluster(t *testing.T) {
	r, w := newWorld(t, nil, behind)
	hop := func() error {
		_, err := r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{Name: aws.String("green"), Version: aws.String("1.33")})
		return err
	}
	want := "Nodegroups workers must be updated to match cluster version 1.32 before updating cluster version"
	if err := hop(); wiretest.Code(err) != "InvalidParameterException" || message(err) != want {
		t.Fatalf("with a node group behind: %v", err)
	}
	u, err := r.raiseGroup(t, awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers"), Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Version": "1.32", "ReleaseVersion": "1.32.11-20261119"}, params(u)); diff != "" || u.Type != types.UpdateTypeVersionUpdate {
		t.Errorf("accepted as %s %s", u.Type, diff)
	}
	if g := r.group(t, "workers"); g.Status != types.NodegroupStatusUpdating || *g.Version != "1.31" || *g.ReleaseVersion != "1.31.14-20261119" {
		t.Errorf("meanwhile it is %s at %s, %s", g.Status, *g.Version, *g.ReleaseVersion)
	}
	if _, err := r.raiseGroup(t, awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers")}); wiretest.Code(err) != "ResourceInUseException" ||
		message(err) != "Nodegroup cannot be updated as it is currently not in Active State" {
		t.Errorf("a second one: %v", err)
	}
	r.clock.Step(6 * time.Minute)
	eventually(t, "it ends", func() bool { return r.groupUpdate(t, "workers", *u.Id).Status == types.UpdateStatusSuccessful })
	if g := r.group(t, "workers"); g.Status != types.NodegroupStatusActive || *g.Version != "1.32" || *g.ReleaseVersion != "1.32.11-20261119" {
		t.Errorf("then it is %s at %s, %s", g.Status, *g.Version, *g.ReleaseVersion)
	}
	if got := w.told(); !slices.Equal(got, []string{"nodes of green/workers: 2 at 1.32 [] [] replace=true force=true"}) {
		t.Errorf("asked of the world: %q", got)
	}
	if err := hop(); err != nil {
		t.Errorf("the next hop: %v", err)
	}
}

// An update lasts until its nodes are there, and fails for what could not be done to them.
func TestANodegroupUpdateWaitsForItsNodes(t *testing.T) {
	release := make(chan []eks.UpdateError)
	r, w := newWorld(t, nil, behind)
	w.nodes = func(context.Context, eks.NodegroupWork) []eks.UpdateError { return <-release }
	u, err := r.raiseGroup(t, awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers"), Version: aws.String("1.32")})
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Hour)
	if got := r.groupUpdate(t, "workers", *u.Id); got.Status != types.UpdateStatusInProgress {
		t.Fatalf("before its nodes are there it is %s", got.Status)
	}
	release <- []eks.UpdateError{{Code: "PodEvictionFailure", Message: "Reached max retries", ResourceIDs: []string{"ip-1"}}}
	eventually(t, "it fails", func() bool { return r.groupUpdate(t, "workers", *u.Id).Status == types.UpdateStatusFailed })
	got := r.groupUpdate(t, "workers", *u.Id)
	if got.Errors[0].ErrorCode != types.ErrorCodePodEvictionFailure || !slices.Equal(got.Errors[0].ResourceIds, []string{"ip-1"}) {
		t.Errorf("errors are %+v", got.Errors)
	}
	if g := r.group(t, "workers"); *g.Version != "1.31" || g.Status != types.NodegroupStatusActive {
		t.Errorf("the group is %s at %s", g.Status, *g.Version)
	}
}

func TestANodegroupUpdateFailsAsTold(t *testing.T) {
	r, w := newWorld(t, nil, behind)
	err := r.svc.FailUpdates(eks.Failure{Cluster: "green", Nodegroup: "workers", Version: "1.32", Errors: []eks.UpdateError{{Code: "PodEvictionFailure"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []types.UpdateStatus{types.UpdateStatusFailed, types.UpdateStatusSuccessful} {
		u, err := r.raiseGroup(t, awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers")})
		if err != nil {
			t.Fatal(err)
		}
		r.clock.Step(6 * time.Minute)
		eventually(t, string(want), func() bool { return r.groupUpdate(t, "workers", *u.Id).Status == want })
	}
	if got := w.told(); len(got) != 1 {
		t.Errorf("the world was asked for %q", got)
	}
}

func TestNodegroupVersionsThatAreRefused(t *testing.T) {
	own := func(version string) *types.LaunchTemplateSpecification {
		return &types.LaunchTemplateSpecification{Name: aws.String("own"), Version: aws.String(version)}
	}
	for name, tt := range map[string]struct {
		in            awseks.UpdateNodegroupVersionInput
		code, message string
	}{
		"ahead of the cluster": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers"), Version: aws.String("1.33")}, "InvalidParameterException",
			"Nodegroup Kubernetes version should be equal to Cluster kubernetes version 1.32 or NodeGroup kubernetes version 1.32"},
		"another release": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers"), ReleaseVersion: aws.String("1.31.3-20250103")},
			"InvalidParameterException", "Requested release version 1.31.3-20250103 is not valid for kubernetes version 1.32."},
		"a template for none": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers"), LaunchTemplate: own("2")}, "InvalidParameterException",
			"You cannot specify a launch template for a node group that was not created with one"},
		"custom, version": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("own"), Version: aws.String("1.32"), LaunchTemplate: own("2")},
			"InvalidParameterException", "You cannot specify the field kubernetesVersion when using custom AMIs."},
		"custom, release": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("own"), ReleaseVersion: aws.String("x"), LaunchTemplate: own("2")},
			"InvalidParameterException", "You cannot specify the field releaseVersion when using custom AMIs."},
		"custom, no template": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("own")}, "InvalidParameterException",
			"Launch template details can't be null for Custom ami type node group"},
		"custom, image ahead": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("own"), LaunchTemplate: own("3")}, "InvalidParameterException",
			"Launch template version 3 has no image for Kubernetes version 1.32 or older"},
		"another template": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("own"), LaunchTemplate: &types.LaunchTemplateSpecification{Name: aws.String("their")}},
			"InvalidParameterException", "The launch template of node group own is own"},
		"unknown group": {awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("none")}, "ResourceNotFoundException", "No node group found for name: none."},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := newWorld(t, nil, workers, custom)
			_, err := r.raiseGroup(t, tt.in)
			if wiretest.Code(err) != tt.code || message(err) != tt.message {
				t.Errorf("got %v", err)
			}
			if got := w.told(); len(got) > 0 {
				t.Errorf("asked of the world: %q", got)
			}
		})
	}
}

func TestACustomImageComesWithItsTemplate(t *testing.T) {
	r, _ := newWorld(t, nil, custom)
	g := r.group(t, "own")
	if g.AmiType != types.AMITypesCustom || *g.Version != "1.31" || !strings.HasPrefix(*g.ReleaseVersion, "ami-0") || *g.LaunchTemplate.Version != "1" {
		t.Errorf("at first %s at %s, %s", g.AmiType, *g.Version, *g.ReleaseVersion)
	}
	u, err := r.raiseGroup(t, awseks.UpdateNodegroupVersionInput{
		NodegroupName: aws.String("own"), LaunchTemplate: &types.LaunchTemplateSpecification{Id: aws.String("lt-1"), Version: aws.String("2")},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Step(6 * time.Minute)
	eventually(t, "it ends", func() bool { return r.groupUpdate(t, "own", *u.Id).Status == types.UpdateStatusSuccessful })
	if then := r.group(t, "own"); *then.Version != "1.32" || *then.ReleaseVersion == *g.ReleaseVersion || *then.LaunchTemplate.Version != "2" {
		t.Errorf("then at %s, %s", *then.Version, *then.ReleaseVersion)
	}
}

// A group goes to zero and back; the largest size stays, since it has to be at least 1.
func TestANodegroupGoesToZeroAndBack(t *testing.T) {
	r, w := newWorld(t, nil, eks.Nodegroup{Name: "workers", Min: 2, Max: 4, Desired: 3, Labels: map[string]string{"tier": "web"}})
	size := func(lowest, most, desired int32) error {
		out, err := r.UpdateNodegroupConfig(t.Context(), &awseks.UpdateNodegroupConfigInput{ClusterName: aws.String("green"), NodegroupName: aws.String("workers"),
			ScalingConfig: &types.NodegroupScalingConfig{MinSize: &lowest, MaxSize: &most, DesiredSize: &desired}})
		if err != nil {
			return err
		}
		r.clock.Step(20 * time.Second)
		u := r.groupUpdate(t, "workers", *out.Update.Id)
		if u.Status != types.UpdateStatusSuccessful || u.Type != types.UpdateTypeConfigUpdate || len(u.Params) != 3 {
			t.Errorf("it ends as %s %s with %v", u.Status, u.Type, params(u))
		}
		return nil
	}
	for _, tt := range []struct {
		lowest, most, desired int32
		want                  string
	}{
		{0, 4, 0, ""},
		{0, 0, 0, "maxSize is not valid"},
		{-1, 4, 0, "minSize is not valid"},
		{2, 4, 1, "Minimum capacity 2 can't be greater than desired size 1"},
		{2, 4, 5, "desiredSize can't be greater than maxSize"},
		{2, 4, 3, ""},
	} {
		before := *r.group(t, "workers").ScalingConfig
		if err := size(tt.lowest, tt.most, tt.desired); message(err) != tt.want {
			t.Errorf("%d to %d, %d: %v", tt.lowest, tt.most, tt.desired, err)
		}
		got := *r.group(t, "workers").ScalingConfig
		if same := *got.DesiredSize == *before.DesiredSize; same != (tt.want != "") || *got.MaxSize != 4 {
			t.Errorf("%d to %d, %d: it has %d of %d", tt.lowest, tt.most, tt.desired, *got.DesiredSize, *got.MaxSize)
		}
	}
	want := []string{"nodes of green/workers: 0 at 1.32 [tier] [] replace=false force=false", "nodes of green/workers: 3 at 1.32 [tier] [] replace=false force=false"}
	var told []string
	eventually(t, "both sizes reach the world", func() bool { told = append(told, w.told()...); return len(told) == 2 })
	slices.Sort(told)
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

func TestNodegroupLabelsAndTaints(t *testing.T) {
	r, _ := newWorld(t, nil, eks.Nodegroup{Name: "workers", Max: 1, Labels: map[string]string{"a": "1", "b": "2"}, Taints: []eks.Taint{{Key: "k", Value: "v", Effect: "NO_SCHEDULE"}}})
	_, err := r.UpdateNodegroupConfig(t.Context(), &awseks.UpdateNodegroupConfigInput{
		ClusterName: aws.String("green"), NodegroupName: aws.String("workers"),
		Labels: &types.UpdateLabelsPayload{AddOrUpdateLabels: map[string]string{"b": "3"}, RemoveLabels: []string{"a"}},
		Taints: &types.UpdateTaintsPayload{
			AddOrUpdateTaints: []types.Taint{{Key: aws.String("k"), Value: aws.String("w"), Effect: types.TaintEffectNoSchedule}, {Key: aws.String("n"), Effect: types.TaintEffectNoExecute}},
			RemoveTaints:      []types.Taint{{Key: aws.String("n"), Effect: types.TaintEffectNoExecute}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Step(20 * time.Second)
	g := r.group(t, "workers")
	if diff := cmp.Diff(map[string]string{"b": "3"}, g.Labels); diff != "" {
		t.Error(diff)
	}
	if len(g.Taints) != 2 || *g.Taints[0].Value != "w" {
		t.Errorf("taints are %+v", g.Taints)
	}
}

func TestAnUpdateTokenStandsForOneGroupAndRequest(t *testing.T) {
	r, w := newWorld(t, nil, behind)
	in := awseks.UpdateNodegroupVersionInput{NodegroupName: aws.String("workers"), ClientRequestToken: aws.String(token)}
	u, err := r.raiseGroup(t, in)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.raiseGroup(t, in); err != nil || *again.Id != *u.Id {
		t.Errorf("the same again: %v %v", again, err)
	}
	in.Force = true
	if _, err := r.raiseGroup(t, in); wiretest.Code(err) != "InvalidParameterException" {
		t.Errorf("another with the token: %v", err)
	}
	if _, err := r.DescribeUpdate(t.Context(), &awseks.DescribeUpdateInput{Name: aws.String("green"), UpdateId: u.Id}); wiretest.Code(err) != "ResourceNotFoundException" {
		t.Errorf("without its group: %v", err)
	}
	for group, want := range map[string]int{"": 0, "workers": 1} {
		out, err := r.ListUpdates(t.Context(), &awseks.ListUpdatesInput{Name: aws.String("green"), NodegroupName: aws.String(group)})
		if err != nil || len(out.UpdateIds) != want {
			t.Errorf("updates of %q: %v %v", group, out, err)
		}
	}
	eventually(t, "the world is asked once", func() bool { return len(w.told()) == 1 })
}

func TestNodegroupsThatCannotBe(t *testing.T) {
	r, _ := newWorld(t, nil)
	for name, g := range map[string]eks.Nodegroup{
		"no name": {Max: 1}, "no such version": {Name: "x", Version: "1.2", Max: 1}, "no largest size": {Name: "x"},
		"more than most": {Name: "x", Max: 1, Desired: 2}, "custom without a template": {Name: "x", Max: 1, AMIType: "CUSTOM"},
	} {
		if err := r.svc.AddCluster(eks.Cluster{Name: name, Version: "1.32", Nodegroups: []eks.Nodegroup{g}}); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}
