package planfile

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
)

// ResolveOff is the value of Restart.Resolve that asks no name.
const ResolveOff = "off"

var (
	cronJobs     = words{known: []string{"run", "suspend"}}
	finishedJobs = words{known: []string{"keep", "delete"}}
	actions      = words{known: []string{ActionEvict, ActionRecreate, ActionOutage}}
)

var (
	// Kubernetes: RFC 1123 label.
	namespaceForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	ownerForm     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[A-Z][A-Za-z0-9]*/[A-Za-z0-9][A-Za-z0-9.:_-]*$`)
	// nodeForm names the owner of static pods, which is in no namespace.
	nodeForm = regexp.MustCompile(`^Node/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

func (v *validator) restart(r *Restart) {
	if r.MaxParallel < 1 || r.MaxParallel > 100 {
		v.bad("restart.maxParallel", "%d is not from 1 to 100", r.MaxParallel)
	}
	v.positive("restart.timeout", r.Timeout)
	v.positive("restart.pending", r.Pending)
	v.positive("restart.jobTimeout", r.JobTimeout)
	v.word("restart.cronJobs", r.CronJobs, cronJobs)
	v.word("restart.finishedJobs", r.FinishedJobs, finishedJobs)
	if r.FinishedAge < 0 {
		v.bad("restart.finishedAge", "%s is less than nothing", r.FinishedAge)
	}
	v.resolve(r)
	v.unique("restart.order", r.Order, func(path, ns string) {
		if !namespaceForm.MatchString(ns) {
			v.bad(path, "%.120q is no name of a namespace", ns)
		}
	})
	v.allows(r.Allow)
	v.skips(r.Skip)
}

// resolve wants a whole name: what is asked of CoreDNS goes through no search list.
func (v *validator) resolve(r *Restart) {
	name := strings.ToLower(strings.TrimSuffix(r.Resolve, "."))
	if net.ParseIP(name) != nil {
		v.bad("restart.resolve", "%.120q is an address, which needs no resolving; write a name, as kubernetes.default.svc.cluster.local, or off", r.Resolve)
	} else if name != ResolveOff && (len(name) > 253 || !dnsForm.MatchString(name)) {
		v.bad("restart.resolve", "%.120q is no whole DNS name; write it as kubernetes.default.svc.cluster.local, or off", r.Resolve)
	}
	r.Resolve = name
}

func (v *validator) skips(skips []Skip) {
	var owners []string
	for i, s := range skips {
		owners = append(owners, s.Owner)
		v.blank(fmt.Sprintf("restart.skip[%d].reason", i), s.Reason)
	}
	v.unique("restart.skip", owners, func(path, owner string) {
		if !nodeForm.MatchString(owner) {
			v.owner(path+".owner", owner)
		}
	})
}

func (v *validator) owner(path, owner string) bool {
	if ownerForm.MatchString(owner) {
		return true
	}
	v.bad(path, "%.120q is no owner; write namespace/Kind/name, as in shop/Job/nightly-report", owner)
	return false
}

func (v *validator) allows(allow []Allow) {
	for i, a := range allow {
		path := fmt.Sprintf("restart.allow[%d]", i)
		v.blank(path+".reason", a.Reason)
		v.word(path+".action", a.Action, actions)
		if !v.owner(path+".owner", a.Owner) || !slices.Contains(actions.known, a.Action) {
			continue
		}
		if slices.ContainsFunc(allow[:i], func(b Allow) bool { return b.Owner == a.Owner && b.Action == a.Action }) {
			v.bad(path, "%s of %s is there twice", a.Action, a.Owner)
			continue
		}
		if why := senseless(strings.Split(a.Owner, "/")[1], a.Action); why != "" {
			v.bad(path+".action", "%s of a %s: %s", a.Action, strings.Split(a.Owner, "/")[1], why)
		}
	}
}

// senseless says why an action means nothing for owners of a kind, or "".
func senseless(kind, action string) string {
	switch {
	case kind == "Pod" && action == ActionEvict:
		return "nothing would make a bare pod again; write recreate"
	case kind == "Pod" && action == ActionOutage:
		return "a bare pod is away until it is made again; write recreate"
	case kind != "Pod" && action == ActionRecreate:
		return "its controller makes its pods; recreate is for bare pods, namespace/Pod/name"
	case kind == "Job" || kind == "CronJob":
		return "a Job that is still running is waited for, for jobTimeout; list it under skip to leave it"
	case kind == "DaemonSet" || kind == "Node":
		return "its pods get a new kubelet with their node; raise its node group, or list it under skip"
	}
	return ""
}
