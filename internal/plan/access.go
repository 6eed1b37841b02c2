package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// Permission is what eksbg needs of a cluster's API server for one thing that it does.
type Permission struct {
	// Resources are RESOURCE[.GROUP] or RESOURCE/SUBRESOURCE.
	Verbs, Resources []string
	// For says what for, for people.
	For string
	// use is what the steps of a plan have to do for this to be needed; unasked is found out
	// without a question.
	use use
	// name is that of the one object that is meant.
	name string
}

// use is something that the steps of a plan do in a cluster.
type use int

const (
	// unasked is what the plan itself was made with, and what the lock was taken with: it
	// was allowed. And what a run does without.
	unasked use = iota
	useLock
	useWatches
	useControllers
	useDeployments
	useStatefulSets
	useRollouts
	useEvictions
	useResolve
	useReplicaSets
	useReplicationControllers
	useMarks
	useSeen
	usePending
	useRecreate
	useCronJobs
	useJobs
	useFinishedPods
)

// Permissions are all that eksbg may need of a cluster's API server, in the order of
// docs/permissions.md, which has the same table.
func Permissions() []Permission {
	verbs := func(v ...string) []string { return v }
	of := func(r ...string) []string { return r }
	return []Permission{
		{Verbs: verbs("list"), For: "every look (`plan`, `lag`, `status`), in all namespaces", Resources: of("nodes", "pods", "deployments.apps", "statefulsets.apps",
			"replicasets.apps", "replicationcontrollers", "daemonsets.apps", "jobs.batch", "cronjobs.batch", "poddisruptionbudgets.policy",
			"priorityclasses.scheduling.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io", "mutatingwebhookconfigurations.admissionregistration.k8s.io")},
		{Verbs: verbs("get"), Resources: of("services"), For: "every look: what stands behind fail-closed webhooks"},
		{Verbs: verbs("create"), Resources: of("selfsubjectaccessreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io"),
			For: "asking for all of this before the first change; every authenticated user may"},
		{Verbs: verbs("get", "update"), Resources: of("leases.coordination.k8s.io"), use: useLock, name: lease.Name,
			For: "the lock between machines, taken before the first change: the Lease `eksbg` in kube-system"},
		{Verbs: verbs("create"), Resources: of("leases.coordination.k8s.io"), For: "that Lease, where no run has made it yet"},

		{Verbs: verbs("watch"), use: useWatches, For: "every restart, in all namespaces",
			Resources: of("nodes", "pods", "deployments.apps", "statefulsets.apps", "replicasets.apps", "poddisruptionbudgets.policy")},
		{Verbs: verbs("watch"), Resources: of("replicationcontrollers"), use: useControllers, For: "restarts where there are any, in all namespaces"},
		{Verbs: verbs("get", "patch"), Resources: of("deployments.apps"), use: useDeployments, For: "rolling restarts of Deployments"},
		{Verbs: verbs("get", "patch"), Resources: of("statefulsets.apps"), use: useStatefulSets, For: "rolling restarts of StatefulSets"},
		{Verbs: verbs("get", "patch"), Resources: of("rollouts.argoproj.io"), use: useRollouts, For: "Argo Rollouts"},
		{Verbs: verbs("create"), Resources: of("pods/eviction"), use: useEvictions, For: "owners whose pods go one by one"},
		{Verbs: verbs("get"), Resources: of("pods"), use: useSeen, For: "seeing whether a pod is still there before its owner is restarted again"},
		{Verbs: verbs("delete"), Resources: of("pods"), use: usePending, For: "pods that Fargate leaves Pending"},
		{Verbs: verbs("create"), Resources: of("pods/portforward"), use: useResolve, For: "`restart.resolve`: asking each new CoreDNS pod, in kube-system"},

		{Verbs: verbs("get", "patch"), Resources: of("replicasets.apps"), use: useReplicaSets, For: "ReplicaSets of one replica without a Deployment: one more, and back"},
		{Verbs: verbs("get", "patch"), Resources: of("replicationcontrollers"), use: useReplicationControllers, For: "ReplicationControllers of one replica: one more, and back"},
		{Verbs: verbs("patch"), Resources: of("pods"), use: useMarks, For: "owners of one replica: the old pod is marked as the one to go"},
		{Verbs: verbs("get", "patch"), Resources: of("cronjobs.batch"), use: useCronJobs, For: "`restart.cronJobs: suspend`"},
		{Verbs: verbs("create"), Resources: of("pods"), use: useRecreate, For: "`restart.allow` with `recreate`"},
		{Verbs: verbs("get", "create", "update", "delete"), Resources: of("podtemplates"), use: useRecreate,
			For: "`restart.allow` with `recreate`: the manifest is kept in one until the new pod stands"},
		{Verbs: verbs("get"), Resources: of("namespaces"), use: useRecreate, For: "`restart.allow` with `recreate`: a pod that goes with its namespace is not made again"},
		{Verbs: verbs("list"), Resources: of("podtemplates"), For: "every restart: telling of those that a lost run has left; not told of without"},
		{Verbs: verbs("delete"), Resources: of("jobs.batch"), use: useJobs, For: "`restart.finishedJobs: delete`, `eksbg jobs clean`"},
		{Verbs: verbs("delete"), Resources: of("pods"), use: useFinishedPods, For: "finished pods, with these two"},
	}
}

// everywhere are all namespaces at once.
const everywhere = ""

// uses are the namespaces in which the steps of a plan do something in a cluster.
type uses map[use]map[string]bool

func (u uses) add(what use, namespace string) {
	if u[what] == nil {
		u[what] = map[string]bool{}
	}
	u[what][namespace] = true
}

// access is what these uses need, by verb and resource, each of them once.
func (u uses) access() []state.Access {
	var out []state.Access
	for _, p := range Permissions() {
		if p.use == unasked || len(u[p.use]) == 0 {
			continue
		}
		var namespaces []string
		if !u[p.use][everywhere] {
			namespaces = slices.Sorted(maps.Keys(u[p.use]))
		}
		for _, r := range p.Resources {
			for _, v := range p.Verbs {
				out = merged(out, state.Access{Verb: v, Resource: r, Namespaces: namespaces, Name: p.name, For: strings.ReplaceAll(p.For, "`", "")})
			}
		}
	}
	return out
}

// merged adds an access, or widens one that is there already.
func merged(all []state.Access, a state.Access) []state.Access {
	i := slices.IndexFunc(all, func(b state.Access) bool { return a.Verb == b.Verb && a.Resource == b.Resource && a.Name == b.Name })
	if i < 0 {
		return append(all, a)
	}
	have := &all[i]
	if !strings.Contains(have.For, a.For) {
		have.For += "; " + a.For
	}
	if len(have.Namespaces) == 0 || len(a.Namespaces) == 0 {
		have.Namespaces = nil
		return all
	}
	have.Namespaces = slices.Concat(have.Namespaces, a.Namespaces)
	slices.Sort(have.Namespaces)
	have.Namespaces = slices.Compact(have.Namespaces)
	return all
}

// access enters into the plan what its steps use of each API server.
func (b *builder) access() {
	if len(b.plan.Steps) == 0 {
		return
	}
	b.plan.Access = map[state.Side][]state.Access{}
	for _, side := range state.Sides {
		if b.world.Inventories[side] == nil {
			continue
		}
		u := uses{}
		u.add(useLock, lease.Namespace)
		for _, s := range b.plan.Steps {
			if s.Side != side {
				continue
			}
			switch s.Kind {
			case state.KindRestart:
				b.restartUses(u, s)
			case state.KindJobs:
				b.jobsUses(u, side)
			}
		}
		b.plan.Access[side] = u.access()
	}
}

func (b *builder) jobsUses(u uses, side state.Side) {
	for _, l := range b.finished(side).Deletable() {
		what := useFinishedPods
		if l.Owner().Kind == "Job" {
			what = useJobs
		}
		u.add(what, l.Owner().Namespace)
	}
}

// restartUses are those of a restart, as the cluster stands now.
func (b *builder) restartUses(u uses, s state.StepSpec) {
	inv := b.world.Inventories[s.Side]
	u.add(useWatches, everywhere)
	if slices.ContainsFunc(inv.Workloads, func(w cluster.Workload) bool { return w.Kind == "ReplicationController" }) {
		u.add(useControllers, everywhere)
	}
	works := false
	for _, it := range b.survey(s.Side, s.To) {
		if it.Works() {
			works = true
			b.itemUses(u, it)
		}
	}
	if works && b.file.Restart.CronJobs == "suspend" {
		for _, cj := range inv.CronJobs {
			if !cj.Suspended {
				u.add(useCronJobs, cj.Namespace)
			}
		}
	}
	for _, p := range inv.Pods {
		if p.Node == "" && !p.Finished && !p.Once && p.Owner.Kind != "Pod" {
			u.add(usePending, p.Namespace)
		}
	}
}

// itemUses are those of the restart of one owner.
func (b *builder) itemUses(u uses, it survey.Item) {
	ns, r := it.Owner.Namespace, b.file.Restart
	u.add(useSeen, ns)
	if it.Method != survey.Recreate {
		u.add(usePending, ns)
	}
	if it.Group == survey.CoreDNS && r.Resolve != "" && r.Resolve != planfile.ResolveOff {
		u.add(useResolve, ns)
	}
	switch it.Method {
	case survey.Rollout:
		what := useDeployments
		if it.Owner.Kind == "StatefulSet" {
			what = useStatefulSets
		}
		u.add(what, ns)
		if slices.ContainsFunc(r.Allow, func(a planfile.Allow) bool { return a.Owner == it.Owner.String() && a.Action == planfile.ActionEvict }) {
			u.add(useEvictions, ns) // should somebody take the restart back
		}
	case survey.Evict, survey.InOrder:
		u.add(useEvictions, ns)
	case survey.RestartAt:
		u.add(useRollouts, ns)
	case survey.Surge:
		what := useReplicaSets
		if it.Owner.Kind == "ReplicationController" {
			what = useReplicationControllers
		}
		u.add(what, ns)
		u.add(useMarks, ns)
	case survey.Recreate:
		u.add(useRecreate, ns)
		u.add(useEvictions, ns)
	}
}
