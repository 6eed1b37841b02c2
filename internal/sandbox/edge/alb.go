package edge

import (
	"io"
	"net/http"
)

// balance answers as an application load balancer does: a group by weight, then one
// of its healthy targets. A group whose targets are all unhealthy fails open and
// gets the request all the same; one without targets answers 503, as does a rule
// whose weights are all zero (AWS documents the former, ELB user guide, "Target
// group health"; the latter is undocumented).
func (e *Edge) balance(w http.ResponseWriter, r *http.Request, b Balancer) {
	action := b.Route(r)
	if action.Status != 0 {
		w.WriteHeader(action.Status)
		_, _ = io.WriteString(w, action.Body) // a client that left is its own affair
		return
	}
	groups := action.Groups
	choices := make([]weighted, len(groups))
	for i, g := range groups {
		choices[i] = weighted{key: g.ARN, weight: g.Weight}
	}
	i := e.picks.pick("alb "+b.Name, choices)
	if i < 0 {
		e.write(w, http.StatusServiceUnavailable, Answer{Via: b.Name})
		return
	}
	g := groups[i]
	a := Answer{Cluster: g.Cluster, Via: b.Name}
	targets := g.Targets
	if healthy := healthyOf(targets); len(healthy) > 0 {
		targets = healthy
	}
	if len(targets) == 0 {
		e.write(w, http.StatusServiceUnavailable, a)
		return
	}
	t := targets[e.turn(b.Name+" "+g.ARN, len(targets))]
	a.Pod = t.Pod
	if !t.Ready {
		// Nothing listens in a pod that is not ready: the load balancer says bad gateway.
		e.write(w, http.StatusBadGateway, a)
		return
	}
	e.answer(w, a)
}

func healthyOf(targets []Target) []Target {
	var healthy []Target
	for _, t := range targets {
		if t.Healthy {
			healthy = append(healthy, t)
		}
	}
	return healthy
}
