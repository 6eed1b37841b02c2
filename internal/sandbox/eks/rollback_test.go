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
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

const old, young = "v1.31.14-eks-6ae7ca2", "v1.32.10-eks-1a2b3c4"

// raised is a rig whose blue cluster has gone from 1.31 to 1.32, ten minutes ago.
func raised(t *testing.T, edit func(*eks.Options)) *rig {
	t.Helper()
	r := newRig(t, edit)
	if _, err := r.raise(t, "1.32", "up"); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(10 * time.Minute)
	if v := *r.cluster(t).Version; v != "1.32" {
		t.Fatalf("at %s", v)
	}
	return r
}

func TestAVersionIsRolledBack(t *testing.T) {
	r := raised(t, nil)
	u, err := r.raise(t, "1.31", "down")
	if err != nil {
		t.Fatal(err)
	}
	if u.Type != types.UpdateTypeVersionRollback || u.Status != types.UpdateStatusInProgress || params(u)["Version"] != "1.31" || params(u)["PlatformVersion"] != "eks.54" {
		t.Errorf("accepted as %s %s %v", u.Type, u.Status, params(u))
	}
	if again, err := r.raise(t, "1.31", "down"); err != nil || *again.Id != *u.Id {
		t.Errorf("the same again: %v %v", again, err)
	}
	_, err = r.raise(t, "1.31", "another")
	if want := fmt.Sprintf("Cannot VersionRollback because cluster blue currently has update %s in progress", *u.Id); message(err) != want {
		t.Errorf("a second one: %v", err)
	}
	r.clock.Step(time.Minute)
	if c := r.cluster(t); c.Status != types.ClusterStatusUpdating || *c.Version != "1.32" {
		t.Errorf("meanwhile %s at %s", c.Status, *c.Version)
	}
	_, err = r.CancelUpdate(t.Context(), &awseks.CancelUpdateInput{Name: aws.String("blue"), UpdateId: u.Id})
	if wiretest.Code(err) != "InvalidRequestException" {
		t.Errorf("cancelled: %v", err)
	}
	r.clock.Step(9 * time.Minute)
	if c := r.cluster(t); c.Status != types.ClusterStatusActive || *c.Version != "1.31" {
		t.Errorf("then %s at %s", c.Status, *c.Version)
	}
	if got := r.heard(); !slices.Equal(got, []string{"blue 1.32", "blue 1.31"}) {
		t.Errorf("told %v", got)
	}
	// It was one step; the next one up is open, the next one down is not.
	if _, err := r.raise(t, "1.30", "further"); message(err) != "Unsupported Kubernetes minor version update from 1.31 to 1.30" {
		t.Errorf("a second step down: %v", err)
	}
	if _, err := r.raise(t, "1.32", "again"); err != nil {
		t.Errorf("up again: %v", err)
	}
}

func TestRollbacksThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		seed          eks.Cluster
		after         time.Duration
		kubelets      []string
		minutes       *int32
		code, message string
		forced        bool // whether force helps
	}{
		"created at it":  {seed: eks.Cluster{}, code: "InvalidParameterException", message: "Unsupported Kubernetes minor version update from 1.32 to 1.31"},
		"after a week":   {seed: eks.Cluster{UpgradedAt: start}, after: 7 * 24 * time.Hour, code: "InvalidRequestException", message: "7-day rollback window"},
		"support policy": {seed: eks.Cluster{UpgradedAt: start, SupportType: "STANDARD"}, code: "InvalidRequestException", message: "extended support"},
		"short time-out": {seed: eks.Cluster{UpgradedAt: start}, minutes: aws.Int32(119), code: "InvalidParameterException", message: "between 120 and 10080"},
		"long time-out":  {seed: eks.Cluster{UpgradedAt: start}, minutes: aws.Int32(10081), code: "InvalidParameterException", message: "between 120 and 10080"},
		"a Fargate pod started since": {seed: eks.Cluster{UpgradedAt: start}, kubelets: []string{old, young}, code: "InvalidStateException",
			message: "Kubelet version skew is ERROR", forced: true},
		"kube-proxy ahead": {seed: eks.Cluster{UpgradedAt: start, Addons: []eks.Addon{{Name: "kube-proxy", Version: "v1.32.11-eksbuild.2"}}},
			code: "InvalidStateException", message: "kube-proxy version skew is ERROR", forced: true},
		"an add-on of the new version alone": {seed: eks.Cluster{UpgradedAt: start, Addons: []eks.Addon{{Name: "vpc-cni", Version: "v1.21.1-eksbuild.3"}}},
			code: "InvalidStateException", message: "EKS add-on version compatibility is ERROR", forced: true},
		"health": {seed: eks.Cluster{UpgradedAt: start, Issues: []eks.Issue{{Code: "KmsKeyNotFound"}}}, code: "InvalidStateException",
			message: "Cluster health issues is ERROR", forced: true},
		"all is well": {seed: eks.Cluster{UpgradedAt: start}, after: 7*24*time.Hour - time.Second, kubelets: []string{old}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *eks.Options) { o.Kubelets = func(string) []string { return tt.kubelets } })
			tt.seed.Name, tt.seed.Version = "blue2", "1.32"
			if err := r.svc.AddCluster(tt.seed); err != nil {
				t.Fatal(err)
			}
			r.clock.Step(tt.after)
			in := &awseks.UpdateClusterVersionInput{Name: aws.String("blue2"), Version: aws.String("1.31")}
			if tt.minutes != nil {
				in.RollbackConfig = &types.RollbackConfig{TimeoutMinutes: tt.minutes}
			}
			_, err := r.UpdateClusterVersion(t.Context(), in)
			if wiretest.Code(err) != tt.code || !strings.Contains(message(err), tt.message) {
				t.Fatalf("got %v", err)
			}
			if tt.code == "" {
				return
			}
			in.Force = true
			if _, err := r.UpdateClusterVersion(t.Context(), in); (err == nil) != tt.forced {
				t.Errorf("forced: %v", err)
			}
		})
	}
	r := raised(t, func(o *eks.Options) { o.Kubelets = nil })
	in := &awseks.UpdateClusterVersionInput{Name: aws.String("blue"), Version: aws.String("1.31")}
	if _, err := r.UpdateClusterVersion(t.Context(), in); wiretest.Code(err) != "InvalidStateException" || !strings.Contains(message(err), "Kubelet version skew is UNKNOWN") {
		t.Errorf("what is not known: %v", err)
	}
	in.Force, in.RollbackConfig = true, &types.RollbackConfig{TimeoutMinutes: aws.Int32(120)}
	if _, err := r.UpdateClusterVersion(t.Context(), in); err != nil {
		t.Errorf("what is not known, forced: %v", err)
	}
}

// Somebody else's upgrade can be rolled back like any other, what is no upgrade by one
// minor cannot.
func TestWhatWasRaisedElsewhereGoesBack(t *testing.T) {
	for to, want := range map[string]string{"1.32": "", "1.33": "InvalidParameterException"} {
		r := newRig(t, nil)
		if err := r.svc.Raise("blue", to); err != nil {
			t.Fatal(err)
		}
		if _, err := r.raise(t, map[string]string{"1.32": "1.31", "1.33": "1.32"}[to], "down"); wiretest.Code(err) != want {
			t.Errorf("from %s: %v", to, err)
		}
	}
}

// The insights about the way back are there while it is, and follow the kubelets without
// anybody asking for a refresh.
func TestRollbackReadiness(t *testing.T) {
	readiness := func(r *rig) map[string]string {
		out := map[string]string{}
		for _, i := range r.insights(t, &types.InsightsFilter{Categories: []types.Category{"ROLLBACK_READINESS"}}) {
			out[*i.Name+" "+*i.KubernetesVersion] = string(i.InsightStatus.Status)
		}
		return out
	}
	r := newRig(t, nil)
	if got := readiness(r); len(got) > 0 {
		t.Errorf("before an upgrade: %v", got)
	}
	r = raised(t, nil)
	want := map[string]string{
		"Kubelet version skew 1.31": "PASSING", "kube-proxy version skew 1.31": "PASSING",
		"EKS add-on version compatibility 1.31": "PASSING", "Cluster health issues 1.31": "PASSING",
	}
	if diff := cmp.Diff(want, readiness(r)); diff != "" {
		t.Error(diff)
	}
	r.setKubelets(old, young)
	if _, err := r.raise(t, "1.31", "down"); wiretest.Code(err) != "InvalidStateException" {
		t.Fatalf("with a young kubelet: %v", err)
	}
	want["Kubelet version skew 1.31"] = "ERROR"
	if diff := cmp.Diff(want, readiness(r)); diff != "" {
		t.Error(diff)
	}
	r.clock.Step(7 * 24 * time.Hour)
	r.refresh(t)
	if got := readiness(r); len(got) > 0 {
		t.Errorf("after a week: %v", got)
	}
}

// A scenario's own insight about the way back counts like EKS's.
func TestARollbackInsightOfAScenario(t *testing.T) {
	for status, want := range map[string]string{"WARNING": "", "UNKNOWN": "InvalidStateException"} {
		r := raised(t, nil)
		err := r.svc.SetInsight("blue", eks.Insight{Name: "Kubernetes API usage", Version: "1.31", Category: "ROLLBACK_READINESS", Status: status})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.raise(t, "1.31", "down"); wiretest.Code(err) != want {
			t.Errorf("%s: %v", status, err)
		}
	}
}

// auto is a rig with an Auto Mode cluster that was upgraded at the start.
func auto(t *testing.T, edit func(*eks.Options)) (*rig, func(minutes int32) *types.Update) {
	t.Helper()
	r := newRig(t, func(o *eks.Options) {
		o.AutoNodes = 3 * time.Hour
		if edit != nil {
			edit(o)
		}
	})
	if err := r.svc.AddCluster(eks.Cluster{Name: "auto", Version: "1.32", UpgradedAt: start, AutoMode: true}); err != nil {
		t.Fatal(err)
	}
	return r, func(minutes int32) *types.Update {
		t.Helper()
		out, err := r.UpdateClusterVersion(t.Context(), &awseks.UpdateClusterVersionInput{
			Name: aws.String("auto"), Version: aws.String("1.31"), RollbackConfig: &types.RollbackConfig{TimeoutMinutes: &minutes},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.Update
	}
}

func (r *rig) of(t *testing.T, cluster string, u *types.Update) (*types.Update, *types.Cluster) {
	t.Helper()
	out, err := r.DescribeUpdate(t.Context(), &awseks.DescribeUpdateInput{Name: &cluster, UpdateId: u.Id})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.DescribeCluster(t.Context(), &awseks.DescribeClusterInput{Name: &cluster})
	if err != nil {
		t.Fatal(err)
	}
	return out.Update, c.Cluster
}

func TestAutoModeRollsItsNodesBackFirst(t *testing.T) {
	r, back := auto(t, nil)
	u := back(720)
	for _, at := range []struct {
		after   time.Duration
		status  types.ClusterStatus
		update  types.UpdateStatus
		version string
	}{
		{2 * time.Hour, types.ClusterStatusActive, types.UpdateStatusInProgress, "1.32"},
		{3*time.Hour + 5*time.Second, types.ClusterStatusUpdating, types.UpdateStatusInProgress, "1.32"},
		{3*time.Hour + 10*time.Minute, types.ClusterStatusActive, types.UpdateStatusSuccessful, "1.31"},
	} {
		r.clock.SetTime(start.Add(at.after))
		u, c := r.of(t, "auto", u)
		if c.Status != at.status || u.Status != at.update || *c.Version != at.version || !*c.ComputeConfig.Enabled {
			t.Errorf("after %s: %s at %s, update %s", at.after, c.Status, *c.Version, u.Status)
		}
	}
}

func TestACancelledRollback(t *testing.T) {
	r, back := auto(t, nil)
	u := back(720)
	cancel := func() (*types.Update, error) {
		out, err := r.CancelUpdate(t.Context(), &awseks.CancelUpdateInput{Name: aws.String("auto"), UpdateId: u.Id})
		if err != nil {
			return nil, err
		}
		return out.Update, nil
	}
	for range 2 { // the second asks for what is under way
		got, err := cancel()
		if err != nil || got.Status != types.UpdateStatusInProgress || got.Cancellation.Status != types.CancellationStatusInProgress {
			t.Fatalf("asked to cancel: %+v %v", got, err)
		}
	}
	r.clock.Step(5 * time.Second)
	got, c := r.of(t, "auto", u)
	if got.Status != types.UpdateStatusCancelled || got.Cancellation.Status != types.CancellationStatusSuccessful || *c.Version != "1.32" || c.Status != types.ClusterStatusActive {
		t.Errorf("then %s, cancellation %s, cluster %s at %s", got.Status, got.Cancellation.Status, c.Status, *c.Version)
	}
	if _, err := cancel(); wiretest.Code(err) != "InvalidRequestException" {
		t.Errorf("once more: %v", err)
	}
	u = back(720)
	r.clock.Step(3 * time.Hour)
	if _, err := cancel(); wiretest.Code(err) != "InvalidRequestException" {
		t.Errorf("when the control plane goes back: %v", err)
	}
	u = &types.Update{Id: aws.String("none")}
	if _, err := cancel(); wiretest.Code(err) != "ResourceNotFoundException" {
		t.Errorf("none: %v", err)
	}
}

func TestARollbackTimesOut(t *testing.T) {
	r, back := auto(t, func(o *eks.Options) { o.Speed = 2 })
	u := back(120)
	r.clock.Step(time.Hour)
	got, c := r.of(t, "auto", u)
	if got.Status != types.UpdateStatusFailed || len(got.Errors) != 1 || *c.Version != "1.32" {
		t.Errorf("after its two hours, twice as fast: %s %v at %s", got.Status, got.Errors, *c.Version)
	}
}

// Whatever is asked in whatever order: a version goes down only right after it went up by
// itself, within a week of that, and never twice in a row.
func TestRollbacksNeverGoFurther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, nil)
		at, from, since := 31, 0, time.Time{}
		for n := range rapid.IntRange(1, 15).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "wait") {
				r.clock.Step(time.Duration(rapid.IntRange(0, 100).Draw(rt, "hours")) * time.Hour)
				continue
			}
			to := at + rapid.IntRange(-2, 2).Draw(rt, "by")
			in := &awseks.UpdateClusterVersionInput{Name: aws.String("blue"), Version: aws.String(fmt.Sprintf("1.%d", to)),
				ClientRequestToken: aws.String(fmt.Sprint("token-", n)), Force: true}
			_, err := r.UpdateClusterVersion(t.Context(), in)
			down := to == at-1 && to == from && r.clock.Since(since) < 7*24*time.Hour
			up := to == at+1 && to <= 34 // 1.31 kubelets stay, which 1.35 has no room for
			if want := up || down; (err == nil) != want {
				rt.Fatalf("1.%d to 1.%d, from 1.%d %s ago: %v", at, to, from, r.clock.Since(since), err)
			}
			if err != nil {
				continue
			}
			r.clock.Step(10 * time.Minute)
			from, since = at, r.clock.Now()
			if down {
				from = 0
			}
			at = to
			if got := *r.cluster(t).Version; got != fmt.Sprintf("1.%d", at) {
				rt.Fatalf("at %s instead of 1.%d", got, at)
			}
		}
	})
}
