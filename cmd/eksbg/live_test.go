package main

import (
	"context"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// giveAll sets the weights of every listener by hand: all to the side, nothing to the
// other one.
func giveAll(t *testing.T, box *sandbox.Sandbox, side string) {
	t.Helper()
	api := elb.New(elb.Options{
		Region: envOf(box, "AWS_REGION"), BaseEndpoint: awssdk.String(envOf(box, "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2")),
		Credentials: credentials.NewStaticCredentialsProvider(envOf(box, "AWS_ACCESS_KEY_ID"), envOf(box, "AWS_SECRET_ACCESS_KEY"), ""),
	})
	lbs, err := api.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lb := range lbs.LoadBalancers {
		ls, err := api.DescribeListeners(t.Context(), &elb.DescribeListenersInput{LoadBalancerArn: lb.LoadBalancerArn})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls.Listeners {
			for _, a := range l.DefaultActions {
				if a.ForwardConfig == nil {
					continue
				}
				for i, g := range a.ForwardConfig.TargetGroups {
					w := int32(0)
					if strings.Contains(*g.TargetGroupArn, "-"+side) {
						w = 100
					}
					a.ForwardConfig.TargetGroups[i].Weight = &w
				}
			}
			if _, err := api.ModifyListener(context.WithoutCancel(t.Context()), &elb.ModifyListenerInput{ListenerArn: l.ListenerArn, DefaultActions: l.DefaultActions}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// restarted counts what was done to pods and their owners.
func restarted(entries []wire.Entry) int {
	n := 0
	for _, e := range entries {
		if e.Changing && e.Accepted && strings.HasPrefix(e.Call, "k8s:") && !strings.HasSuffix(e.Call, " leases") {
			n++
		}
	}
	return n
}

// A restart of the standby is killed, and somebody gives the traffic to it: the resumed
// run restarts nothing there before that is approved by name, and says where the traffic
// is (semantics 22).
func TestAResumedRestartDoesNotTouchTheSideThatHasComeToServe(t *testing.T) {
	t.Parallel()
	box := lagBox(t)
	held := holdAt(t, box, wire.Fault{Call: "k8s:create pods/eviction", Hold: "before"})
	p := begin(t, box, restartArgs(box)...)
	p.reaches(t, held)
	kill(t, p)
	box.Faults().Clear()
	giveAll(t, box, "green")
	before := restarted(requests(t, box))

	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 4 {
		t.Errorf("exit %d, want 4\n%s", exit, out)
	}
	says(t, out, "green gets traffic now", "blue 0, green 100", "--approve restart-live")
	if n := restarted(requests(t, box)) - before; n != 0 {
		t.Errorf("%d changes in the cluster that serves", n)
	}
	// Weights that cannot be read are no pass either.
	if err := box.Faults().Add(wire.Fault{Call: "elbv2:Describe*", Times: -1, Status: 403, Error: "AccessDenied", Message: "no"}); err != nil {
		t.Fatal(err)
	}
	if out, exit = runOnce(t, box, nil, restartArgs(box)...); exit == 0 || restarted(requests(t, box)) != before {
		t.Errorf("unknown: exit %d\n%s", exit, out)
	}
	box.Faults().Clear()
	out, exit = runOnce(t, box, nil, append(restartArgs(box), "--approve", "restart-live")...)
	if exit != 0 {
		t.Errorf("approved: exit %d\n%s", exit, out)
	}
	says(t, out, "100 % -> 0 %", "0 % -> 100 %")
}
