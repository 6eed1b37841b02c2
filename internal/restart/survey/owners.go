package survey

import "github.com/eksbg/eksbg/internal/planfile"

// Row is one line of the table of owners.
type Row struct {
	// Owner is the kind, When the case of it; empty is the usual one.
	Owner, When string
	Method      Method
	// Action is what restart.allow has to permit for Allowed to be the method instead;
	// empty where no permission changes it.
	Action  string
	Allowed Method
	// How says in a sentence what happens, or what a person can do.
	How string
}

// anyOwner stands for every kind that the method in question is for.
const anyOwner = "any"

// Owners is what a survey decides, as a table in the order of its documentation
// (docs/restart.md).
func Owners() []Row {
	return []Row{
		{Owner: "Deployment", Method: Rollout,
			How: "its controller replaces the pods within maxSurge and maxUnavailable"},
		{Owner: "Deployment", When: "the rollout would take all of several replicas at once", Method: Evict,
			How: "strategy Recreate, or maxUnavailable of all replicas: the pods are evicted one by one instead"},
		{Owner: "Deployment", When: "paused", Method: None, Action: planfile.ActionEvict, Allowed: Evict,
			How: "a paused Deployment rolls nothing: resume it, or allow evictions one by one"},
		{Owner: "Deployment", When: "CoreDNS with several replicas", Method: Evict,
			How: "first and alone, one pod at a time, without a change of the add-on's template; each new pod has to resolve a name"},
		{Owner: "Deployment", When: "CoreDNS with one replica", Method: Rollout,
			How: "first and alone; the surge keeps one pod ready"},
		{Owner: "StatefulSet", Method: Rollout,
			How: "its controller replaces one pod after the other (maxUnavailable, where it states one), from the highest ordinal"},
		{Owner: "StatefulSet", When: "a partition keeps lagging pods", Method: None, Action: planfile.ActionEvict, Allowed: InOrder,
			How: "a rollout leaves ordinals below spec.ordinals.start + partition as they are: set the partition to 0, or allow evictions"},
		{Owner: "StatefulSet", When: "OnDelete", Method: InOrder,
			How: "one pod at a time from the highest ordinal, ready in between; a pending change of the template comes with it"},
		{Owner: "ReplicaSet", When: "without an owner, several replicas", Method: Evict,
			How: "evicted one by one, ready in between"},
		{Owner: "ReplicaSet", When: "without an owner, one replica", Method: Surge,
			How: "one replica more, the old pod goes, the number is put back"},
		{Owner: "ReplicationController", When: "several replicas", Method: Evict,
			How: "evicted one by one, ready in between"},
		{Owner: "ReplicationController", When: "one replica", Method: Surge,
			How: "one replica more, the old pod goes, the number is put back"},
		{Owner: "Rollout (argoproj.io)", Method: RestartAt,
			How: "spec.restartAt: its controller evicts what is older, within its maxUnavailable"},
		{Owner: "another custom kind", Method: Evict,
			How: "evicted one by one; its controller has to make the pods again"},
		{Owner: "another custom kind", When: "pods that end by themselves", Method: Wait,
			How: "restartPolicy Never or OnFailure: waited for, at most restart.jobTimeout"},
		{Owner: "Job", Method: Wait, How: "waited for, at most restart.jobTimeout; or left by restart.skip"},
		{Owner: "CronJob", Method: Wait, How: "its running Job is waited for, at most restart.jobTimeout; restart.cronJobs: suspend starts no more of them meanwhile"},
		{Owner: "Pod", When: "bare", Method: None, Action: planfile.ActionRecreate, Allowed: Recreate,
			How: "nothing makes it again: delete it, or allow that it is made anew from its own spec"},
		{Owner: "Pod", When: "static or mirror", Method: None, How: "goes with its node: raise the node group"},
		{Owner: "DaemonSet", Method: None, How: "not on Fargate; goes with its nodes: raise the node group"},
		{Owner: anyOwner, When: "all lagging pods on nodes that are not Fargate", Method: None,
			How: "no restart changes the kubelet of such a node: raise its node group"},
		{Owner: anyOwner, When: "all lagging pods terminating", Method: Wait, How: "they go by themselves"},
		{Owner: anyOwner, When: "scaled to 0", Method: Wait, How: "the pods go by themselves"},
		{Owner: anyOwner, When: "no ready pod meanwhile, and the cluster has the traffic", Method: None,
			Action: planfile.ActionOutage, Allowed: Rollout,
			How: "one replica that cannot surge: add one, or consent to the outage; without traffic it is listed"},
		{Owner: anyOwner, When: "behind a fail-closed webhook, no ready pod meanwhile", Method: None,
			Action: planfile.ActionOutage, Allowed: Rollout,
			How: "with or without traffic: what the webhook guards could not be created, its own pods perhaps"},
		{Owner: anyOwner, When: "a budget never allows the rollout, but one pod", Method: Evict,
			How: "evicted one by one (a StatefulSet: in order), as the PodDisruptionBudget allows"},
		{Owner: anyOwner, When: "a budget never allows a pod to go", Method: None,
			Action: planfile.ActionOutage, Allowed: Rollout,
			How: "lower what the budget asks for, or consent that the rollout breaks it"},
		{Owner: anyOwner, When: "evicted, and two budgets select a pod", Method: None,
			How: "the Eviction API refuses such a pod always: leave one budget"},
		{Owner: anyOwner, When: "in restart.skip", Method: None, How: "left on its kubelet until the day that the plan file names"},
	}
}
