package restart

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// orphan is a mark of eksbg in the cluster that the journal knows nothing of: the journal
// was lost, or the run that left it was closed. No other run lives while this one holds the
// locks, so it is this one's to put back.
type orphan struct {
	deed
	call string
	undo any
}

// orphans finds the CronJobs and sets that are still marked.
func orphans(inv *cluster.Inventory, led *ledger) []orphan {
	known := map[string]bool{}
	for _, e := range led.owed() {
		known[e.Owner+" "+e.Mark] = true
	}
	var out []orphan
	for _, cj := range inv.CronJobs {
		if cj.Mark != "" && !known[cj.String()+" "+cj.Mark] {
			out = append(out, orphan{deed: deed{Do: doSuspend, Owner: cj.String(), Object: cj.Name, UID: cj.UID, Mark: cj.Mark},
				call: "k8s:patch cronjobs", undo: undoSuspend{Mark: cj.Mark}})
		}
	}
	for _, w := range inv.Workloads {
		// grow writes the number to put back behind the time.
		_, before, _ := strings.Cut(w.Mark, ".")
		n, err := strconv.ParseInt(before, 10, 32)
		if w.Mark == "" || known[w.String()+" "+w.Mark] || err != nil || n < 1 {
			continue
		}
		out = append(out, orphan{deed: deed{Do: doSurge, Owner: w.String(), Object: w.Name, UID: w.UID, From: int32(n), To: int32(n) + 1, Mark: w.Mark},
			call: "k8s:patch " + resource(w.Owner), undo: undoSurge{Replicas: int32(n), Mark: w.Mark}})
	}
	return out
}

// adopt takes what another run has left marked into this step's journal and puts it back,
// and says so with the command that does it by hand. An API server that does not take it
// for now is waited for; what cannot be put back stays owed, like the step's own.
func (c *campaign) adopt(ctx context.Context, all []orphan) error {
	for _, o := range all {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		seq, err := c.intend(o.call, o.Owner, o.deed, o.undo)
		if err != nil {
			return err
		}
		if err := c.settle(seq, state.Found, o.Owner+": marked by a run that is not resumed", landed{UID: o.UID}); err != nil {
			return err
		}
		if err := c.record(state.RecordWarning, fmt.Sprintf("%s was left changed by a run that is not resumed; it is put back (by hand: %s)",
			o.Owner, c.bySeq[seq].byHand())); err != nil {
			return err
		}
		e := c.bySeq[seq]
		w := c.outside(e)
		if err := c.insist(ctx, w, func() error {
			if err := c.guard(o.call, o.Owner); err != nil {
				return err
			}
			return c.undoOnce(ctx, w, e)
		}); err != nil {
			return err
		}
	}
	return nil
}

// leftManifests tells of the manifests of bare pods that a run has evicted and never made
// again. Whether they are still wanted nobody here knows. Where PodTemplates may not be
// listed nothing is said.
func (c *campaign) leftManifests(ctx context.Context, inv *cluster.Inventory) error {
	kept, err := c.Kubernetes.CoreV1().PodTemplates("").List(ctx, metav1.ListOptions{Limit: 500})
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return c.record(state.RecordWarning, "PodTemplates that a run may have left could not be listed: "+err.Error())
	}
	pods, unfinished := map[string]bool{}, c.unfinished()
	for _, p := range inv.Pods {
		pods[p.Namespace+"/"+p.Name] = true
	}
	for _, t := range kept.Items {
		name, ours := strings.CutPrefix(t.Name, stashName(""))
		if !ours || t.Annotations[recreateAnnotation] == "" || pods[t.Namespace+"/"+name] || unfinished[t.Namespace+"/Pod/"+name] != nil {
			continue
		}
		ns, object := state.Clean(t.Namespace), state.Clean(t.Name)
		if err := c.record(state.RecordWarning, fmt.Sprintf("pod %s/%s was evicted by a run that is not resumed and never made again: its manifest is kept. "+
			"Make it again (`%s`), and drop that (`kubectl delete podtemplate -n %s %s`)", t.Namespace, name, remakeByHand(ns, name), ns, object)); err != nil {
			return err
		}
	}
	return nil
}
