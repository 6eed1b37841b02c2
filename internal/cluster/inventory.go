package cluster

import "time"

// Inventory is one cluster as one pass over it saw it.
type Inventory struct {
	Name string `json:"name"`
	ARN  string `json:"arn"`
	// Version is the control plane's minor as EKS states it, "1.31".
	Version string `json:"version"`
	// Status is EKS's: ACTIVE, UPDATING, …
	Status    string    `json:"status"`
	Endpoint  string    `json:"endpoint"`
	CreatedAt time.Time `json:"createdAt"`
	// At is when the pass began.
	At time.Time `json:"at"`
	// Server is what the API server itself answers at /version, "v1.31.14-eks-1a2b3c4".
	Server string `json:"server"`
	// Updates are the cluster's updates in progress; UpdatesUnread counts those that
	// were not looked at because there were too many (see Client.Updates).
	Updates       []Update `json:"updates,omitempty"`
	UpdatesUnread int      `json:"updatesUnread,omitempty"`

	Nodes     []Node     `json:"nodes"`
	Pods      []Pod      `json:"pods"`
	Workloads []Workload `json:"workloads"`
	Jobs      []Job      `json:"jobs,omitempty"`
	CronJobs  []CronJob  `json:"cronJobs,omitempty"`
	Budgets   []Budget   `json:"budgets,omitempty"`
	// Webhooks are the fail-closed admission webhooks that pods of this cluster serve.
	Webhooks []Webhook `json:"webhooks,omitempty"`

	nodes map[string]int
}

// Job is one Job.
type Job struct {
	Owner
	// CronJob is the CronJob that made it; zero for none.
	CronJob Owner `json:"cronJob,omitzero"`
	// Active is status.active. Finished Jobs are Complete or Failed since FinishedAt.
	Active     int32     `json:"active,omitempty"`
	Suspended  bool      `json:"suspended,omitempty"`
	Finished   bool      `json:"finished,omitempty"`
	Failed     bool      `json:"failed,omitempty"`
	CreatedAt  time.Time `json:"createdAt"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// TTL is spec.ttlSecondsAfterFinished; nil where the Job stays until somebody deletes it.
	TTL *int32 `json:"ttl,omitempty"`
	// Controller is another controller than a CronJob that made it (a workflow engine).
	Controller Owner `json:"controller,omitzero"`
}

// CronJob is one CronJob.
type CronJob struct {
	Owner
	// ResourceVersion is the version of the object that all this is of.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Suspended       bool   `json:"suspended,omitempty"`
	// KeepSucceeded and KeepFailed are its history limits (the API's defaults: 3 and 1).
	KeepSucceeded int32 `json:"keepSucceeded"`
	KeepFailed    int32 `json:"keepFailed"`
	// TTL is the ttlSecondsAfterFinished of its Job template.
	TTL *int32 `json:"ttl,omitempty"`
	// Mark is the annotation SuspendAnnotation: eksbg has suspended it for a restart.
	Mark string `json:"mark,omitempty"`
}

// Budget is one PodDisruptionBudget as its controller last stated it.
type Budget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID and Generation are of its metadata: they tell whether its spec is another one.
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Allowed, Healthy, Desired and Expected are status.disruptionsAllowed, currentHealthy,
	// desiredHealthy and expectedPods.
	Allowed  int32 `json:"allowed"`
	Healthy  int32 `json:"healthy"`
	Desired  int32 `json:"desired"`
	Expected int32 `json:"expected"`
	// Current is false while the controller has not seen the newest spec.
	Current bool `json:"current"`
}

// String is namespace/name.
func (b Budget) String() string { return b.Namespace + "/" + b.Name }

// Webhook is one admission webhook with failurePolicy Fail and a service in the
// cluster: while no pod of the service answers, what it guards cannot be created.
type Webhook struct {
	// Configuration is the name of its Validating- or MutatingWebhookConfiguration, Name
	// the webhook's own.
	Configuration string `json:"configuration"`
	Name          string `json:"name"`
	// Service is namespace/name of its service, Owners what the pods behind it belong to.
	Service string  `json:"service"`
	Owners  []Owner `json:"owners"`
}

// Update is one update of a cluster, as DescribeUpdate states it.
type Update struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	// Version is the parameter Version of a VersionUpdate or VersionRollback.
	Version   string    `json:"version,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// Computes that nodes are told apart by. The label eks.amazonaws.com/compute-type
// says fargate, hybrid or auto; a node without it is an EC2 instance.
const (
	ComputeFargate = "fargate"
	ComputeEC2     = "ec2"
	ComputeAuto    = "auto"
	ComputeHybrid  = "hybrid"
)

// Node is one node.
type Node struct {
	Name string `json:"name"`
	// Kubelet is status.nodeInfo.kubeletVersion in full, Minor its minor; Minor is
	// empty when the kubelet has not said a version yet.
	Kubelet string `json:"kubelet"`
	Minor   string `json:"minor"`
	// Compute is one of the constants above, or what the label says.
	Compute string `json:"compute"`
	// Profile is the Fargate profile of a Fargate node's pod, where it is labelled.
	Profile string `json:"profile,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Ready   bool   `json:"ready"`
}

// Pod is one pod with its top owner.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Node is empty while the pod is not scheduled.
	Node  string `json:"node,omitempty"`
	Phase string `json:"phase"`
	Ready bool   `json:"ready"`
	// Terminating pods have a deletion timestamp; they still hold their node.
	Terminating bool `json:"terminating,omitempty"`
	// Finished pods are Succeeded or Failed; their containers do not run any more.
	Finished bool  `json:"finished,omitempty"`
	Owner    Owner `json:"owner"`
	// Job is the UID of the Job that made the pod, whatever made the Job; empty for none.
	Job string `json:"job,omitempty"`
	// CreatedAt is when the pod object was made, StartTime when the kubelet took it;
	// zero before that.
	CreatedAt time.Time `json:"createdAt"`
	StartTime time.Time `json:"startTime,omitzero"`
	// FinishedAt is when the last container of a finished pod ended.
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Scheduler is spec.schedulerName where it is not the default; Profile the Fargate
	// profile that took the pod (its label eks.amazonaws.com/fargate-profile).
	Scheduler string `json:"scheduler,omitempty"`
	Profile   string `json:"profile,omitempty"`
	// MilliCPU is what Fargate provisioned for the pod, in thousandths of a vCPU (its
	// annotation CapacityProvisioned); 0 where that is not said.
	MilliCPU int32 `json:"milliCPU,omitempty"`
	// Budgets are the places in Inventory.Budgets of those that select the pod.
	Budgets []int `json:"budgets,omitempty"`
	// Static is true for the mirror of a static pod.
	Static bool `json:"static,omitempty"`
	// Once is true for pods that are meant to end (restartPolicy Never or OnFailure):
	// nobody runs the work of one again that is taken away, except a Job.
	Once bool `json:"once,omitempty"`
}

// Owner names the object at the top of a pod's chain of owners that decides over
// its template: Deployment, StatefulSet, DaemonSet, CronJob, Job, ReplicaSet,
// ReplicationController, a custom kind. A Job that something else than a CronJob made
// is the top itself (Job.Controller says what made it): its pods end by themselves. A
// bare pod owns itself (Kind Pod), a static one belongs to its Node.
type Owner struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// String is namespace/Kind/name, as plan files name owners; Kind/name for a node.
func (o Owner) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Namespace + "/" + o.Kind + "/" + o.Name
}

// Strategies of workloads that eksbg has to know about.
const (
	StrategyRollingUpdate = "RollingUpdate"
	StrategyRecreate      = "Recreate"
	StrategyOnDelete      = "OnDelete"
)

// Workload is a Deployment, StatefulSet or DaemonSet, or a ReplicaSet or
// ReplicationController that nobody controls.
type Workload struct {
	Owner
	// Replicas is how many are wanted (a DaemonSet: how many nodes want one).
	Replicas int32 `json:"replicas"`
	// Ready, Updated and Current are status.readyReplicas, updatedReplicas and replicas.
	Ready   int32 `json:"ready"`
	Updated int32 `json:"updated"`
	Current int32 `json:"current"`
	// Paused is a Deployment's spec.paused.
	Paused bool `json:"paused,omitempty"`
	// Strategy is RollingUpdate, Recreate or OnDelete; empty for a ReplicaSet.
	Strategy string `json:"strategy,omitempty"`
	// MaxSurge and MaxUnavailable are a rolling Deployment's, in pods, rounded as its
	// controller rounds them. MaxUnavailable is also a StatefulSet's that states one (0
	// where it does not: one pod at a time); API servers before 1.37 leave it unused.
	MaxSurge       int32 `json:"maxSurge,omitempty"`
	MaxUnavailable int32 `json:"maxUnavailable,omitempty"`
	// Partition is a StatefulSet's; pods with a lower ordinal are not updated. Start is
	// its first ordinal. Parallel is podManagementPolicy: Parallel.
	Partition int32 `json:"partition,omitempty"`
	Start     int32 `json:"start,omitempty"`
	Parallel  bool  `json:"parallel,omitempty"`
	// Priority is the value of the template's priority class. The pods themselves do not
	// tell: Fargate's webhook gives all of them system-node-critical.
	Priority int32 `json:"priority,omitempty"`
	// Generation is metadata.generation, Observed status.observedGeneration.
	Generation int64 `json:"generation"`
	Observed   int64 `json:"observed"`
	// RestartedAt is the template's annotation kubectl.kubernetes.io/restartedAt.
	RestartedAt string `json:"restartedAt,omitempty"`
	// Mark is the annotation SurgeAnnotation: eksbg has given it a replica more for a
	// restart.
	Mark string `json:"mark,omitempty"`
}

// The annotations that mark what eksbg has changed for the time of a restart only, so that
// it knows its own change from somebody else's: on a ReplicaSet or ReplicationController
// with a replica more, and on a suspended CronJob.
const (
	SurgeAnnotation   = "eksbg.dev/surge"
	SuspendAnnotation = "eksbg.dev/suspended"
)

// RestartedAtAnnotation is the key that `kubectl rollout restart` sets on a pod
// template (k8s.io/kubectl/pkg/polymorphichelpers/objectrestarter.go).
const RestartedAtAnnotation = "kubectl.kubernetes.io/restartedAt"

// Node finds a node by name; false for one that the pass did not see.
func (i *Inventory) Node(name string) (Node, bool) {
	if len(i.nodes) == len(i.Nodes) {
		n, ok := i.nodes[name]
		if !ok {
			return Node{}, false
		}
		return i.Nodes[n], true
	}
	for _, n := range i.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// index makes finding nodes cheap; an inventory put together by hand does without.
func (i *Inventory) index() {
	i.nodes = make(map[string]int, len(i.Nodes))
	for n := range i.Nodes {
		i.nodes[i.Nodes[n].Name] = n
	}
}

// NodeLag is how many minors the node's kubelet is behind the control plane; never
// negative. False when the kubelet has not said its version.
func (i *Inventory) NodeLag(n Node) (int, bool) {
	lag, ok := Skew(n.Minor, i.Version)
	return max(lag, 0), ok
}

// Lag is how many minors the kubelet under the pod is behind the control plane.
// False when the pod has no node, or one that the pass did not see.
func (i *Inventory) Lag(p Pod) (int, bool) {
	n, ok := i.Node(p.Node)
	if p.Node == "" || !ok {
		return 0, false
	}
	return i.NodeLag(n)
}

// Lagging are the unfinished pods, terminating ones included, on nodes whose
// kubelet minor is below the control plane's (semantics 11), in list order.
func (i *Inventory) Lagging() []Pod {
	var out []Pod
	for _, p := range i.Pods {
		if p.Finished {
			continue
		}
		if lag, ok := i.Lag(p); ok && lag > 0 {
			out = append(out, p)
		}
	}
	return out
}

// OldestKubelet is the lowest kubelet minor under an unfinished pod; "" without any.
// A node without pods does not count: on Fargate there is none.
func (i *Inventory) OldestKubelet() string {
	oldest := ""
	for _, p := range i.Pods {
		n, ok := i.Node(p.Node)
		if p.Finished || !ok || n.Minor == "" {
			continue
		}
		if oldest == "" || CompareMinor(n.Minor, oldest) < 0 {
			oldest = n.Minor
		}
	}
	return oldest
}

// PodCount counts the unfinished pods, and those of them that are ready.
func (i *Inventory) PodCount() (ready, all int) {
	for _, p := range i.Pods {
		if p.Finished {
			continue
		}
		all++
		if p.Ready && !p.Terminating {
			ready++
		}
	}
	return ready, all
}
