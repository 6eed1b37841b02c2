package restart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
)

// Leftover is a finished Job with its pods, or a finished pod of no Job or of one that
// still runs. On Fargate a finished pod keeps its node, and so its address, until
// the pod object goes.
type Leftover struct {
	// Job is the Job; its Kind is empty where Pods holds one pod for itself.
	Job cluster.Job
	// Pods are the finished pods.
	Pods []cluster.Pod
	// At is when it finished; zero where nothing says.
	At time.Time
	// Addresses is how many Fargate nodes, and so addresses, the pods hold.
	Addresses int
	// Keep says why it is not deleted, or is empty.
	Keep string
}

// Owner names the leftover as plan files do: namespace/Job/name or namespace/Pod/name.
func (l Leftover) Owner() cluster.Owner {
	if l.Job.Kind != "" {
		return l.Job.Owner
	}
	p := l.Pods[0]
	return cluster.Owner{APIVersion: "v1", Namespace: p.Namespace, Kind: "Pod", Name: p.Name, UID: p.UID}
}

// Leftovers are all finished Jobs and pods of a cluster, the oldest first.
type Leftovers []Leftover

// Finished finds the finished Jobs and pods of a cluster and decides which of them
// may be deleted: those that finished at least age before now, except
//
//   - Jobs of a CronJob that its history limits keep (the newest of each kind): they
//     are the CronJob controller's, which deletes what is beyond (CronJob API,
//     successfulJobsHistoryLimit and failedJobsHistoryLimit; 3 and 1 by default);
//   - Jobs that another controller made, and finished pods of owners that are no
//     ReplicaSet, Deployment or ReplicationController: workflow engines read their
//     results from them;
//   - finished pods of a Job that still runs (an Indexed one has many): its controller
//     counts them.
//
// A Job's own ttlSecondsAfterFinished is no reason to keep it: age is shorter where it
// matters, and the TTL controller takes the rest.
func Finished(inv *cluster.Inventory, age time.Duration, now time.Time) Leftovers {
	pods, alone := podsOfJobs(inv)
	kept := historyKeeps(inv)
	var out Leftovers
	for _, j := range inv.Jobs {
		if !j.Finished {
			for _, p := range pods[j.UID] {
				out = append(out, Leftover{Pods: []cluster.Pod{p}, At: p.FinishedAt, Keep: "its Job still runs"})
			}
			continue
		}
		l := Leftover{Job: j, Pods: pods[j.UID], At: j.FinishedAt}
		switch {
		case j.Controller.Kind != "":
			l.Keep = "made by " + kindOf(j.Controller) + ", which cleans up itself"
		case kept[key(j.Namespace, j.Name)]:
			l.Keep = "kept by the history limits of " + j.CronJob.String()
		}
		out = append(out, l)
	}
	for _, p := range alone {
		l := Leftover{Pods: []cluster.Pod{p}, At: p.FinishedAt}
		if p.Terminating {
			l.Keep = "terminating: goes by itself"
		} else if !discards(p) {
			l.Keep = "belongs to " + p.Owner.String()
		}
		out = append(out, l)
	}
	for i := range out {
		out[i].Addresses = addresses(inv, out[i].Pods)
		switch {
		case out[i].Keep != "":
		case out[i].At.IsZero():
			out[i].Keep = "does not say when it finished"
		case now.Sub(out[i].At) < age:
			out[i].Keep = "finished less than " + age.String() + " ago"
		}
	}
	slices.SortStableFunc(out, func(a, b Leftover) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Owner().String(), b.Owner().String()))
	})
	return out
}

// discards tells whether a finished pod means nothing to its owner any more: a bare
// pod, or a failed one that a ReplicaSet has replaced.
func discards(p cluster.Pod) bool {
	group, _, _ := strings.Cut(p.Owner.APIVersion, "/")
	switch p.Owner.Kind {
	case "Pod", "ReplicationController":
		return p.Owner.APIVersion == "v1" && !p.Static
	case "ReplicaSet", "Deployment":
		return group == "apps"
	}
	return false
}

func kindOf(o cluster.Owner) string {
	if group, _, ok := strings.Cut(o.APIVersion, "/"); ok && !strings.HasPrefix(group, "v1") {
		return o.Kind + "." + group + " " + o.Name
	}
	return o.Kind + " " + o.Name
}

func key(namespace, name string) string { return namespace + "/" + name }

// podsOfJobs sorts the finished pods by the UID of their Job, and gives those without
// one. Names do not tell: a Job's name of more than 57 characters is cut short in those
// of its pods.
func podsOfJobs(inv *cluster.Inventory) (of map[string][]cluster.Pod, alone []cluster.Pod) {
	jobs := make(map[string]bool, len(inv.Jobs))
	for _, j := range inv.Jobs {
		jobs[j.UID] = true
	}
	of = map[string][]cluster.Pod{}
	for _, p := range inv.Pods {
		job := p.Job
		if job == "" && p.Owner.Kind == "Job" {
			job = p.Owner.UID
		}
		switch {
		case !p.Finished:
		case job != "" && jobs[job]:
			of[job] = append(of[job], p)
		default:
			alone = append(alone, p)
		}
	}
	return of, alone
}

// historyKeeps are the finished Jobs that the history limits of their CronJob keep:
// the newest of those that succeeded and of those that failed.
func historyKeeps(inv *cluster.Inventory) map[string]bool {
	limits := make(map[string]cluster.CronJob, len(inv.CronJobs))
	for _, c := range inv.CronJobs {
		limits[c.UID+" "+c.Owner.String()] = c
	}
	by := map[string][]cluster.Job{}
	for _, j := range inv.Jobs {
		if j.Finished && j.CronJob.Kind != "" {
			by[j.CronJob.UID+" "+j.CronJob.String()] = append(by[j.CronJob.UID+" "+j.CronJob.String()], j)
		}
	}
	keep := map[string]bool{}
	for owner, jobs := range by {
		c, ok := limits[owner]
		if !ok { // the CronJob is gone, and with it who would ever delete them
			continue
		}
		slices.SortFunc(jobs, func(a, b cluster.Job) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Name, a.Name))
		})
		left := map[bool]int32{false: c.KeepSucceeded, true: c.KeepFailed}
		for _, j := range jobs {
			if left[j.Failed] > 0 {
				left[j.Failed]--
				keep[key(j.Namespace, j.Name)] = true
			}
		}
	}
	return keep
}

// addresses counts the Fargate nodes under pods.
func addresses(inv *cluster.Inventory, pods []cluster.Pod) int {
	n := 0
	for _, p := range pods {
		if node, ok := inv.Node(p.Node); p.Node != "" && ok && node.Compute == cluster.ComputeFargate {
			n++
		}
	}
	return n
}

// Deletable are those that may be deleted.
func (ls Leftovers) Deletable() Leftovers {
	var out Leftovers
	for _, l := range ls {
		if l.Keep == "" {
			out = append(out, l)
		}
	}
	return out
}

// Kept are those that may not be deleted.
func (ls Leftovers) Kept() Leftovers {
	var out Leftovers
	for _, l := range ls {
		if l.Keep != "" {
			out = append(out, l)
		}
	}
	return out
}

// Addresses is how many addresses they hold.
func (ls Leftovers) Addresses() int {
	n := 0
	for _, l := range ls {
		n += l.Addresses
	}
	return n
}

// Count says how many they are: "12 finished Jobs and 1 finished pod".
func (ls Leftovers) Count() string {
	jobs := 0
	for _, l := range ls {
		if l.Job.Kind != "" {
			jobs++
		}
	}
	var parts []string
	if jobs > 0 {
		parts = append(parts, plural(jobs, "finished Job"))
	}
	if n := len(ls) - jobs; n > 0 {
		parts = append(parts, plural(n, "finished pod"))
	}
	if len(parts) == 0 {
		return "no finished Jobs or pods"
	}
	return strings.Join(parts, " and ")
}

// String is Count with what they hold: "12 finished Jobs hold 13 Fargate addresses".
func (ls Leftovers) String() string {
	verb := "hold"
	switch len(ls) {
	case 0:
		return ls.Count()
	case 1:
		verb = "holds"
	}
	switch n := ls.Addresses(); n {
	case 0:
		return ls.Count() + " " + verb + " no Fargate address"
	case 1:
		return ls.Count() + " " + verb + " 1 Fargate address"
	default:
		return fmt.Sprintf("%s %s %s", ls.Count(), verb, fargateAddresses(n))
	}
}

// fargateAddresses says how many addresses there are.
func fargateAddresses(n int) string {
	if n == 1 {
		return "1 Fargate address"
	}
	return fmt.Sprintf("%d Fargate addresses", n)
}
