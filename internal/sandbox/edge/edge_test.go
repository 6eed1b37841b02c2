package edge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/sandbox/edge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	blueAddr  = netip.MustParseAddr("127.77.1.1")
	greenAddr = netip.MustParseAddr("127.77.1.2")
	albAddr   = netip.MustParseAddr("127.77.1.3")
)

func pods(cluster string, ready ...bool) []edge.Endpoint {
	var eps []edge.Endpoint
	for i, r := range ready {
		eps = append(eps, edge.Endpoint{Pod: fmt.Sprintf("%s-%d", cluster, i), IP: fmt.Sprintf("10.0.0.%d", i+1), Ready: r})
	}
	return eps
}

func targets(eps []edge.Endpoint, healthy bool) []edge.Target {
	var ts []edge.Target
	for _, e := range eps {
		ts = append(ts, edge.Target{Endpoint: e, Healthy: healthy})
	}
	return ts
}

func start(t *testing.T, o edge.Options) *edge.Edge {
	t.Helper()
	e, err := edge.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// get asks once, on a connection of its own; status 0 is a cut connection.
func get(t *testing.T, e *edge.Edge, addr netip.Addr) (int, edge.Answer) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get(fmt.Sprintf("http://%s:%d/healthz", addr, e.Port()))
	if err != nil {
		return 0, edge.Answer{}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a edge.Answer
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	return resp.StatusCode, a
}

func TestMembersAnswerForTheirCluster(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	e := start(t, edge.Options{Members: []edge.Member{
		{Addr: blueAddr, Cluster: "blue", Endpoints: func() []edge.Endpoint { return pods("blue", true, false) }},
		{Addr: greenAddr, Cluster: "green", Endpoints: func() []edge.Endpoint { return pods("green", ready.Load()) }},
	}})
	if status, a := get(t, e, blueAddr); status != 200 || a.Cluster != "blue" || a.Pod != "blue-0" {
		t.Errorf("blue answered %d %+v", status, a)
	}
	if status, a := get(t, e, greenAddr); status != 200 || a.Cluster != "green" {
		t.Errorf("green answered %d %+v", status, a)
	}
	ready.Store(false)
	if status, a := get(t, e, greenAddr); status != 503 || a.Cluster != "green" {
		t.Errorf("green without ready pods answered %d %+v", status, a)
	}
}

func TestBalancerFollowsWeights(t *testing.T) {
	blue, green := targets(pods("blue", true, true), true), targets(pods("green", true), true)
	weights := func(b, g int64) []edge.Group {
		return []edge.Group{
			{ARN: "tg/blue", Weight: b, Cluster: "blue", Targets: blue},
			{ARN: "tg/green", Weight: g, Cluster: "green", Targets: green},
		}
	}
	var groups atomic.Pointer[[]edge.Group]
	e := start(t, edge.Options{Balancers: []edge.Balancer{{
		Addr: albAddr, Name: "shop.elb.test.", Route: func(*http.Request) edge.Action { return edge.Action{Groups: *groups.Load()} },
	}}})
	for _, c := range []struct {
		blue, green int64
		want        map[string]int
	}{
		{100, 0, map[string]int{"blue": 20}},
		{90, 10, map[string]int{"blue": 18, "green": 2}},
		{1, 1, map[string]int{"blue": 10, "green": 10}},
		{0, 100, map[string]int{"green": 20}},
	} {
		g := weights(c.blue, c.green)
		groups.Store(&g)
		got := map[string]int{}
		for range 20 {
			status, a := get(t, e, albAddr)
			if status != 200 {
				t.Fatalf("%d/%d answered %d %+v", c.blue, c.green, status, a)
			}
			got[a.Cluster]++
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%d/%d: got %v, want %v", c.blue, c.green, got, c.want)
		}
	}
}

func TestBalancerWithoutHealthyTargets(t *testing.T) {
	for name, c := range map[string]struct {
		groups []edge.Group
		want   int
	}{
		"no group":         {nil, 503},
		"all weights zero": {[]edge.Group{{ARN: "a", Targets: targets(pods("blue", true), true)}}, 503},
		"no targets":       {[]edge.Group{{ARN: "a", Weight: 1}}, 503},
		"fails open":       {[]edge.Group{{ARN: "a", Weight: 1, Targets: targets(pods("blue", true), false)}}, 200},
		"pod not ready":    {[]edge.Group{{ARN: "a", Weight: 1, Targets: targets(pods("blue", false), false)}}, 502},
		"healthy one is preferred": {[]edge.Group{{ARN: "a", Weight: 1, Targets: append(
			targets(pods("blue", false), false), targets(pods("blue", true), true)...)}}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, edge.Options{Balancers: []edge.Balancer{{
				Addr: albAddr, Name: "x.", Route: func(*http.Request) edge.Action { return edge.Action{Groups: c.groups} },
			}}})
			if status, a := get(t, e, albAddr); status != c.want {
				t.Errorf("answered %d %+v, want %d", status, a, c.want)
			}
		})
	}
}

func TestBalancerAnswersByItself(t *testing.T) {
	e := start(t, edge.Options{Balancers: []edge.Balancer{{
		Addr: albAddr, Name: "x.", Route: func(r *http.Request) edge.Action {
			return edge.Action{Status: 404, Body: `{"cluster":"` + r.URL.Path + `"}`}
		},
	}}})
	if status, a := get(t, e, albAddr); status != 404 || a.Cluster != "/healthz" {
		t.Errorf("answered %d %+v", status, a)
	}
}

func TestFailuresHitTheirPart(t *testing.T) {
	var share atomic.Int64
	e := start(t, edge.Options{
		Members: []edge.Member{
			{Addr: blueAddr, Cluster: "blue", Endpoints: func() []edge.Endpoint { return pods("blue", true) }},
			{Addr: greenAddr, Cluster: "green", Endpoints: func() []edge.Endpoint { return pods("green", true) }},
		},
		Failures: []edge.Failure{{Cluster: "green", Status: 502, Percent: 5, Share: 50}},
		Share:    func(string) float64 { return float64(share.Load()) },
	})
	count := func(addr netip.Addr, n int) map[int]int {
		got := map[int]int{}
		for range n {
			status, _ := get(t, e, addr)
			got[status]++
		}
		return got
	}
	if got := count(greenAddr, 40); got[200] != 40 {
		t.Errorf("below its share: %v", got)
	}
	share.Store(50)
	if got := count(greenAddr, 40); got[200] != 38 || got[502] != 2 {
		t.Errorf("at its share: %v, want 2 of 40 to be 502", got)
	}
	if got := count(blueAddr, 40); got[200] != 40 {
		t.Errorf("the other cluster: %v", got)
	}
	e.Heal("green")
	e.Fail(edge.Failure{Cluster: "green", Percent: 100})
	if got := count(greenAddr, 3); got[0] != 3 {
		t.Errorf("cut connections: %v", got)
	}
	e.Heal("green")
	if got := count(greenAddr, 3); got[200] != 3 {
		t.Errorf("healed: %v", got)
	}
}

// Any run of as many requests as the weights sum to meets each group exactly as
// often as its weight says.
func TestBalancerIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ws := rapid.SliceOfN(rapid.Int64Range(0, 9), 1, 4).Draw(rt, "weights")
		var sum int64
		var groups []edge.Group
		for i, w := range ws {
			sum += w
			c := fmt.Sprint(i)
			groups = append(groups, edge.Group{ARN: c, Cluster: c, Weight: w, Targets: targets(pods(c, true), true)})
		}
		got := edge.Sequence(groups, int(sum))
		for i, w := range ws {
			if int64(got[fmt.Sprint(i)]) != w {
				rt.Fatalf("weights %v were met as %v", ws, got)
			}
		}
	})
}
