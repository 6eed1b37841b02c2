package elbv2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/eksbg/eksbg/internal/sandbox/elbv2"
)

func ready(id string) elbv2.Target {
	return elbv2.Target{ID: id, Port: 8080, Zone: "eu-west-1a", Ready: true}
}

func unready(id string) elbv2.Target { return elbv2.Target{ID: id, Port: 8080, Zone: "eu-west-1a"} }

func TestAGroupOnNoListenerIsNeverHealthy(t *testing.T) {
	r := newRig(t)
	spare, err := r.svc.AddTargetGroup(elbv2.TargetGroup{Name: "spare", Port: 8080})
	if err != nil {
		t.Fatal(err)
	}
	r.setTargets(spare, ready("10.0.0.1"))
	r.health(t, spare)
	r.step(time.Hour)
	if got := r.health(t, spare); !same(got, "10.0.0.1", "unused") {
		t.Errorf("it is %v", got)
	}
	attach := func(weight int) {
		t.Helper()
		_, err := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: aws.String(r.ten()), Actions: []types.Action{forward(r.blue, 100, spare, weight)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	attach(0) // weight 0 is use enough
	for _, tt := range []struct {
		wait time.Duration
		want string
	}{{0, "initial"}, {29 * time.Second, "initial"}, {time.Second, "healthy"}, {time.Hour, "healthy"}} {
		r.step(tt.wait)
		if got := r.health(t, spare); !same(got, "10.0.0.1", tt.want) {
			t.Errorf("%s on it is %v, want %s", tt.wait, got, tt.want)
		}
	}
	attach(50) // a shift begins nothing anew
	if got := r.health(t, spare); !same(got, "10.0.0.1", "healthy") {
		t.Errorf("after a shift it is %v", got)
	}
	if _, err := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: aws.String(r.ten()), Actions: []types.Action{forward(r.blue, 1)}}); err != nil {
		t.Fatal(err)
	}
	if got := r.health(t, spare); !same(got, "10.0.0.1", "unused") {
		t.Errorf("taken off it is %v", got)
	}
	attach(0)
	if got := r.health(t, spare); !same(got, "10.0.0.1", "initial") {
		t.Errorf("attached again it is %v", got)
	}
}

func TestReadinessIsNoticedAfterAWhile(t *testing.T) {
	r := newRig(t)
	r.setTargets(r.blue, ready("10.0.0.1"), unready("10.0.0.2"))
	look := func(want ...string) {
		t.Helper()
		if got := r.health(t, r.blue); !same(got, want...) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	look("10.0.0.1", "initial", "10.0.0.2", "initial")
	r.step(30 * time.Second)
	look("10.0.0.1", "healthy", "10.0.0.2", "unhealthy")
	r.setTargets(r.blue, unready("10.0.0.1"), ready("10.0.0.2"))
	look("10.0.0.1", "healthy", "10.0.0.2", "unhealthy")
	r.step(30 * time.Second)
	look("10.0.0.1", "unhealthy", "10.0.0.2", "healthy")
}

func TestATargetThatLeavesDrains(t *testing.T) {
	r := newRig(t)
	r.setTargets(r.blue, ready("10.0.0.1"), ready("10.0.0.2"))
	r.svc.Settle()
	if got := r.health(t, r.blue); !same(got, "10.0.0.1", "healthy", "10.0.0.2", "healthy") {
		t.Errorf("settled it is %v", got)
	}
	r.setTargets(r.blue, ready("10.0.0.2"), ready("10.0.0.3"))
	if got := r.health(t, r.blue); !same(got, "10.0.0.1", "draining", "10.0.0.2", "healthy", "10.0.0.3", "initial") {
		t.Errorf("replaced it is %v", got)
	}
	r.step(time.Minute)
	if got := r.health(t, r.blue); !same(got, "10.0.0.2", "healthy", "10.0.0.3", "healthy") {
		t.Errorf("a minute on it is %v", got)
	}
	r.setTargets(r.blue)
	r.health(t, r.blue)
	r.setTargets(r.blue, ready("10.0.0.2"))
	if got := r.health(t, r.blue); !same(got, "10.0.0.2", "initial", "10.0.0.3", "draining") {
		t.Errorf("come back it is %v", got)
	}
}

// Who changes the world says so, and health counts from then on.
func TestObserveCountsFromTheChange(t *testing.T) {
	r := newRig(t)
	r.setTargets(r.blue, ready("10.0.0.1"))
	r.svc.Observe()
	r.step(30 * time.Second)
	if got := r.health(t, r.blue); !same(got, "10.0.0.1", "healthy") {
		t.Errorf("it is %v", got)
	}
}

func TestReasonsAndTargetsThatAreNotRegistered(t *testing.T) {
	r := newRig(t)
	r.setTargets(r.blue, ready("10.0.0.1"), unready("10.0.0.2"))
	r.svc.Settle()
	r.setTargets(r.blue, ready("10.0.0.1"), unready("10.0.0.2"), ready("10.0.0.3"))
	out, err := r.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: &r.blue, Targets: []types.TargetDescription{
		{Id: aws.String("10.0.0.1"), Port: aws.Int32(8080)}, {Id: aws.String("10.0.0.2")}, {Id: aws.String("10.0.0.3")}, {Id: aws.String("10.9.9.9")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		state  types.TargetHealthStateEnum
		reason types.TargetHealthReasonEnum
	}{
		{types.TargetHealthStateEnumHealthy, ""},
		{types.TargetHealthStateEnumUnhealthy, types.TargetHealthReasonEnumFailedHealthChecks},
		{types.TargetHealthStateEnumInitial, types.TargetHealthReasonEnumInitialHealthChecking},
		{types.TargetHealthStateEnumUnused, types.TargetHealthReasonEnumNotRegistered},
	} {
		d := out.TargetHealthDescriptions[i]
		if d.TargetHealth.State != want.state || d.TargetHealth.Reason != want.reason || *d.HealthCheckPort != "8080" {
			t.Errorf("%s is %+v", *d.Target.Id, d.TargetHealth)
		}
	}
	if r.svc.Health("none") != nil {
		t.Error("an unknown group has health")
	}
}
