package sandbox

import "time"

// Workload is one thing that runs, with the Service, PodDisruptionBudget and webhook that
// go with it.
type Workload struct {
	Namespace string `yaml:"namespace"`
	// Kind is Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Rollout
	// (of Argo), CloneSet (a custom kind that eksbg knows nothing of), Job, CronJob or Pod.
	Kind string `yaml:"kind"`
	Name string `yaml:"name"`
	// Replicas is 1 unless it is given; Jobs and CronJobs take it as completions.
	Replicas *int32 `yaml:"replicas,omitempty"`
	// Labels are put on the pods beside app: NAME, which selects them.
	Labels map[string]string `yaml:"labels,omitempty"`
	Image  string            `yaml:"image,omitempty"`
	// Strategy is RollingUpdate (default), Recreate or OnDelete; Partition holds
	// ordinals of a StatefulSet back, whose first one is Start; Parallel makes and ends its
	// pods all at once; Paused is a Deployment's.
	Strategy       string `yaml:"strategy,omitempty"`
	MaxSurge       string `yaml:"maxSurge,omitempty"`
	MaxUnavailable string `yaml:"maxUnavailable,omitempty"`
	Partition      int32  `yaml:"partition,omitempty"`
	Start          int32  `yaml:"start,omitempty"`
	Parallel       bool   `yaml:"parallel,omitempty"`
	Paused         bool   `yaml:"paused,omitempty"`
	// PriorityClass is the name of one of the cluster's priority classes.
	PriorityClass string `yaml:"priorityClass,omitempty"`
	// Schedule is a CronJob's; Suspend stops it; Ran is how many finished Jobs of it are
	// there when the world begins, Running how many that run still.
	Schedule string `yaml:"schedule,omitempty"`
	Suspend  bool   `yaml:"suspend,omitempty"`
	Ran      int    `yaml:"ran,omitempty"`
	Running  int    `yaml:"running,omitempty"`
	// RestartPolicy, Never or OnFailure, makes the pods of a CloneSet or a Pod end by
	// themselves, after Runs.
	RestartPolicy string `yaml:"restartPolicy,omitempty"`
	// Runs is how long the pods of a Job or CronJob run, and those that a RestartPolicy lets
	// end; with 0 a Job has finished when the world begins, and a CronJob's pods run as long
	// as a pod takes to start.
	Runs time.Duration `yaml:"runs,omitempty"`
	// MinAvailable makes a PodDisruptionBudget, MaxDisrupted one by maxUnavailable; Port
	// makes a Service.
	MinAvailable string `yaml:"minAvailable,omitempty"`
	MaxDisrupted string `yaml:"maxDisrupted,omitempty"`
	Port         int32  `yaml:"port,omitempty"`
	// Webhook is the name of a validating webhook that fails closed and that the pods serve;
	// it needs a Port. What it guards are objects that are nowhere, so that nothing calls it.
	Webhook string `yaml:"webhook,omitempty"`
	// Grace is the pods' termination grace period in seconds; nil is 30.
	Grace *int64 `yaml:"graceSeconds,omitempty"`
	// Node puts a Pod on one of the cluster's nodes; Static makes it the mirror of a static
	// pod there.
	Node   string `yaml:"node,omitempty"`
	Static bool   `yaml:"static,omitempty"`
	// Mishaps of pods that are made once the world has begun: Forget is how many of them
	// the Fargate scheduler forgets; Fail, image or crash, is why they never get ready. DNS
	// is what CoreDNS pods answer with, NXDOMAIN or SERVFAIL, from the start.
	Forget int    `yaml:"forget,omitempty"`
	Fail   string `yaml:"fail,omitempty"`
	DNS    string `yaml:"dns,omitempty"`
}

// Node is an EC2 instance of a cluster, which nobody replaces.
type Node struct {
	Name string `yaml:"name"`
	// Kubelet is the minor of its kubelet; left out it is the cluster's.
	Kubelet string `yaml:"kubelet,omitempty"`
	Zone    string `yaml:"zone,omitempty"`
}

// GitOps is a controller that keeps Deployments as they are in Git: it takes the
// annotation of a rollout restart out again as soon as it sees it.
type GitOps struct {
	// Manager is the field manager that it writes as.
	Manager string `yaml:"manager"`
	// Owners are Deployments as namespace/Deployment/name.
	Owners []string `yaml:"owners"`
}
