package restart

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// batchSize bounds how many objects one intent names.
const batchSize = 50

// JobsDeps is what the step that deletes finished Jobs works with.
type JobsDeps struct {
	Kubernetes kubernetes.Interface
	// Inventory reads the whole cluster anew.
	Inventory func(context.Context) (*cluster.Inventory, error)
	// Recent gives what was last read of the cluster where that is not long ago and nothing
	// was changed since, and nil otherwise; may be nil.
	Recent  func() *cluster.Inventory
	Clock   clock.Clock
	History state.History
	// Age is how long a Job must have been finished.
	Age time.Duration
	// Timeout bounds the wait until what was deleted is gone; 0 is DefaultTimeout.
	Timeout time.Duration
	// Polling is the longest time between two looks meanwhile; 0 is DefaultHeartbeat.
	Polling time.Duration
}

// Jobs is the step that deletes finished Jobs and pods, so that their Fargate nodes
// and addresses are free for the restart. What may be deleted, Finished decides.
type Jobs struct {
	spec state.StepSpec
	JobsDeps
}

// NewJobs makes the step.
func NewJobs(spec state.StepSpec, d JobsDeps) *Jobs {
	if d.Timeout <= 0 {
		d.Timeout = DefaultTimeout
	}
	if d.Polling <= 0 {
		d.Polling = DefaultHeartbeat
	}
	if d.Recent == nil {
		d.Recent = func() *cluster.Inventory { return nil }
	}
	return &Jobs{spec: spec, JobsDeps: d}
}

// Spec is the step as data.
func (s *Jobs) Spec() state.StepSpec { return s.spec }

// batch is what an intent says: objects of one kind in one namespace, with the pods
// that go with them.
type batch struct {
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace"`
	Objects   []leftover `json:"objects"`
	Addresses int        `json:"addresses"`
}

type leftover struct {
	Name string   `json:"name"`
	UID  string   `json:"uid"`
	Pods []string `json:"pods,omitempty"` // their UIDs
}

func (b batch) String() string {
	return b.Namespace + ": " + plural(len(b.Objects), "finished "+b.Kind)
}

// Observe is Done when nothing is left that may be deleted, and what was deleted is
// gone or has had its time.
func (s *Jobs) Observe(ctx context.Context) (state.Observation, error) {
	inv, err := s.glance(ctx)
	if err != nil {
		return state.Observation{}, err
	}
	all := Finished(inv, s.Age, s.Clock.Now())
	asked, last := s.asked()
	todo := undone(all.Deletable(), asked)
	going := lingering(inv, asked)
	switch {
	case len(todo) > 0:
		return state.Observation{Status: state.Ready, Reason: todo.String()}, nil
	case going > 0 && s.Clock.Since(last) < s.Timeout:
		return state.Observation{Status: state.Ready, Reason: goingText(going)}, nil
	case going > 0:
		return state.Observation{Status: state.Done, Reason: "all are deleted; " + goingText(going)}, nil
	}
	reason := "nothing finished is left"
	if kept := all.Kept(); len(kept) > 0 {
		reason = "kept: " + kept.String()
	}
	return state.Observation{Status: state.Done, Reason: reason}, nil
}

func goingText(n int) string { return plural(n, "deleted Job or pod") + " not gone yet" }

// Act deletes, and waits until the pods are gone.
func (s *Jobs) Act(ctx context.Context, rec state.Recorder) error {
	inv, err := s.glance(ctx)
	if err != nil {
		return err
	}
	if err := s.settle(inv, rec); err != nil {
		return err
	}
	asked, _ := s.asked()
	all := Finished(inv, s.Age, s.Clock.Now())
	for _, b := range batches(undone(all.Deletable(), asked)) {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		if err := s.delete(ctx, rec, b); err != nil {
			return err
		}
	}
	return s.await(ctx, rec)
}

// glance gives a recent look, or lists the cluster.
func (s *Jobs) glance(ctx context.Context) (*cluster.Inventory, error) {
	if inv := s.Recent(); inv != nil {
		return inv, nil
	}
	return s.inventory(ctx)
}

func (s *Jobs) inventory(ctx context.Context) (*cluster.Inventory, error) {
	inv, err := s.Inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the Jobs of %s: %w", s.spec.Side, err)
	}
	return inv, nil
}

// settle looks up what came of deletions that nobody saw the end of.
func (s *Jobs) settle(inv *cluster.Inventory, rec state.Recorder) error {
	there := present(inv)
	for _, r := range state.OpenIntents(s.History.Records(s.spec.ID)) {
		b, ok := batchOf(r)
		if !ok {
			continue
		}
		left := 0
		for _, o := range b.Objects {
			if there[o.UID] {
				left++
			}
		}
		result, text := state.Found, b.String()+" gone"
		if left > 0 {
			result, text = state.Unknown, fmt.Sprintf("%s, %d of them still there", b, left)
		}
		if err := rec.Outcome(r.Seq, result, state.Clean(text), nil); err != nil {
			return fmt.Errorf("record what came of deleting %s: %w", state.Clean(b.String()), err)
		}
	}
	return nil
}

// asked are the UIDs of what the API server was told to delete, pods that go with it
// included, and when the last of it was.
func (s *Jobs) asked() (map[string]bool, time.Time) {
	records := s.History.Records(s.spec.ID)
	batches := map[int64]batch{}
	uids, last := map[string]bool{}, time.Time{}
	for _, r := range records {
		if b, ok := batchOf(r); ok {
			batches[r.Seq] = b
		}
		if r.Kind != state.RecordOutcome || r.Result != state.Accepted {
			continue
		}
		for _, o := range batches[r.Intent].Objects {
			uids[o.UID] = true
			for _, p := range o.Pods {
				uids[p] = true
			}
		}
		last = r.Time
	}
	return uids, last
}

func batchOf(r state.Record) (batch, bool) {
	var b batch
	if r.Kind != state.RecordIntent || r.Change == nil || json.Unmarshal(r.Change.Detail, &b) != nil {
		return batch{}, false
	}
	return b, len(b.Objects) > 0
}

// undone leaves out what was told to go already and is held by a finalizer.
func undone(ls Leftovers, asked map[string]bool) Leftovers {
	var out Leftovers
	for _, l := range ls {
		if !asked[l.Owner().UID] {
			out = append(out, l)
		}
	}
	return out
}

// present are the UIDs of the Jobs and finished pods of a cluster.
func present(inv *cluster.Inventory) map[string]bool {
	out := make(map[string]bool, len(inv.Jobs))
	for _, j := range inv.Jobs {
		out[j.UID] = true
	}
	for _, p := range inv.Pods {
		if p.Finished {
			out[p.UID] = true
		}
	}
	return out
}

func lingering(inv *cluster.Inventory, asked map[string]bool) int {
	n := 0
	for uid := range present(inv) {
		if asked[uid] {
			n++
		}
	}
	return n
}

// batches groups what is to be deleted by kind and namespace, Jobs first, in order.
func batches(ls Leftovers) []batch {
	var out []batch
	at := map[string]int{}
	for _, kind := range []string{"Job", "Pod"} {
		for _, l := range ls {
			o := l.Owner()
			if o.Kind != kind {
				continue
			}
			k := kind + " " + o.Namespace
			i, ok := at[k]
			if !ok || len(out[i].Objects) == batchSize {
				i, at[k] = len(out), len(out)
				out = append(out, batch{Kind: strings.Replace(kind, "Pod", "pod", 1), Namespace: o.Namespace})
			}
			one := leftover{Name: o.Name, UID: o.UID}
			if kind == "Job" {
				for _, p := range l.Pods {
					one.Pods = append(one.Pods, p.UID)
				}
			}
			out[i].Objects = append(out[i].Objects, one)
			out[i].Addresses += l.Addresses
		}
	}
	return out
}

// delete deletes a batch. What is gone already, or has been made anew under the same
// name, counts as deleted.
func (s *Jobs) delete(ctx context.Context, rec state.Recorder, b batch) error {
	call := "k8s:delete " + strings.ToLower(b.Kind) + "s"
	seq, err := rec.Intent(call, state.Clean(b.String()), b, nil)
	if err != nil {
		return fmt.Errorf("record that %s will be deleted: %w", state.Clean(b.String()), err)
	}
	for i, o := range b.Objects {
		if err := state.Guard(rec, call+" on "+state.Clean(b.Namespace+"/"+o.Name)); err != nil {
			return fmt.Errorf("delete finished %ss: %w", b.Kind, err)
		}
		err := s.send(ctx, b, o)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
			return s.refused(rec, seq, b, i, err)
		default:
			return fmt.Errorf("delete %s %s/%s: %w", b.Kind, state.Clean(b.Namespace), state.Clean(o.Name), err)
		}
	}
	text := fmt.Sprintf("%s deleted", b)
	if b.Addresses > 0 {
		text += ", " + fargateAddresses(b.Addresses)
	}
	if err := rec.Outcome(seq, state.Accepted, state.Clean(text), nil); err != nil {
		return fmt.Errorf("record that %s were deleted: %w", state.Clean(b.String()), err)
	}
	return nil
}

// send deletes one object: the one that was seen, with its pods behind it.
func (s *Jobs) send(ctx context.Context, b batch, o leftover) error {
	opts := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID(o.UID))}}
	if b.Kind == "Job" {
		opts.PropagationPolicy = new(metav1.DeletePropagationBackground)
		return s.Kubernetes.BatchV1().Jobs(b.Namespace).Delete(ctx, o.Name, opts)
	}
	return s.Kubernetes.CoreV1().Pods(b.Namespace).Delete(ctx, o.Name, opts)
}

func (s *Jobs) refused(rec state.Recorder, seq int64, b batch, done int, cause error) error {
	result, said := state.Rejected, state.Clean(cause.Error())
	if done > 0 {
		result = state.Failed
	}
	if err := rec.Outcome(seq, result, fmt.Sprintf("%s, %d deleted: %s", state.Clean(b.String()), done, said), nil); err != nil {
		return fmt.Errorf("record what came of deleting %s: %w", state.Clean(b.String()), err)
	}
	return &state.Stop{Code: state.ExitBlocked,
		Why: fmt.Sprintf("the API server refuses to delete %s %s/%s: %s", b.Kind, state.Clean(b.Namespace), state.Clean(b.Objects[done].Name), said),
		Cure: fmt.Sprintf("allow eksbg to delete %ss in namespace %s (RBAC, admission webhooks), or set restart.finishedJobs: keep;\nthen run the same command again",
			strings.ToLower(b.Kind), state.Clean(b.Namespace))}
}

// await looks until what was deleted is gone: soon at first, then at Polling. What a
// finalizer holds for the whole Timeout is said and left.
func (s *Jobs) await(ctx context.Context, rec state.Recorder) error {
	asked, last := s.asked()
	for pause := time.Second; ; pause = min(2*pause, s.Polling) {
		inv, err := s.inventory(ctx)
		if err != nil {
			return err
		}
		going := lingering(inv, asked)
		switch {
		case going == 0:
			return note(rec, state.RecordNote, "what was deleted is gone; left: "+Finished(inv, s.Age, s.Clock.Now()).String())
		case s.Clock.Since(last) >= s.Timeout:
			return note(rec, state.RecordWarning, goingText(going)+" after "+s.Timeout.String()+"; a finalizer may hold them. They keep their Fargate addresses")
		}
		rec.Waiting(goingText(going))
		timer := s.Clock.NewTimer(min(pause, s.Polling))
		select {
		case <-ctx.Done():
			timer.Stop()
			return interrupted(ctx)
		case <-timer.C():
		}
	}
}

func note(rec state.Recorder, kind state.RecordKind, text string) error {
	if err := rec.Record(state.Record{Kind: kind, Text: state.Clean(text)}); err != nil {
		return fmt.Errorf("record the end of the deletions: %w", err)
	}
	return nil
}
