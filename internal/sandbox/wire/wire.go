// Package wire is the way into every service of the sandbox: it logs each
// request, injects the faults of a scenario, and hands the rest to the service.
package wire

import (
	"net/http"
	"time"
)

// Call is one request as the log and the faults see it.
type Call struct {
	// Name is service:Operation ("eks:UpdateClusterVersion") or, for Kubernetes,
	// "k8s:patch deployments", "k8s:create pods/eviction".
	Name string
	// Object is what it is made to: a cluster, a zone, "shop/cart".
	Object string
	// Changing is true for calls that can change the world.
	Changing bool
}

// Service is one API of the sandbox.
type Service interface {
	http.Handler
	// Classify names the request without consuming it; body is its whole body (nil
	// for a watch).
	Classify(r *http.Request, body []byte) Call
	// WriteFault answers with an error in the service's own wire form.
	WriteFault(w http.ResponseWriter, r *http.Request, f Fault)
}

// Fault is one disturbance of a scenario.
type Fault struct {
	// Call is the name of the call, with * for any text: eks:*, k8s:patch *, *.
	Call string `yaml:"call"`
	// Object narrows it to one object; empty means any.
	Object string `yaml:"object,omitempty"`
	// Nth is the first matching call that is hit, from 1; Times how many from there
	// on (default 1, or all when For bounds it; -1 for all).
	Nth   int `yaml:"nth,omitempty"`
	Times int `yaml:"times,omitempty"`
	// Every hits each Every-th matching call again and again instead; Times, when
	// set, bounds how often.
	Every int `yaml:"every,omitempty"`
	// From and For bound it in time since the sandbox started (scaled by its speed);
	// for a fault added later, since it was added. Calls outside are not counted.
	From time.Duration `yaml:"from,omitempty"`
	For  time.Duration `yaml:"for,omitempty"`
	// Onset is the matching call, from 1, at which the time of From and For begins
	// instead: a minute of 503s that begins with the 40th call, whenever that comes.
	Onset int `yaml:"onset,omitempty"`

	// Error is the error code to answer with, Status its HTTP status and Message its text.
	Error   string `yaml:"error,omitempty"`
	Status  int    `yaml:"status,omitempty"`
	Message string `yaml:"message,omitempty"`
	// Delay answers later; Reset cuts the connection: before the service sees the
	// call, or (after) when it has done it.
	Delay time.Duration `yaml:"delay,omitempty"`
	Reset string        `yaml:"reset,omitempty"`
	// Hold never answers until the client goes away: before or after the service did it.
	Hold string `yaml:"hold,omitempty"`
}
