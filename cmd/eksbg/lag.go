package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/restart"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

type lagOptions struct {
	streams
	path     string
	cluster  string
	output   string
	detailed bool
}

func newLagCommand(s streams, runF func(context.Context, *lagOptions) error) *cobra.Command {
	o := &lagOptions{streams: s}
	cmd := &cobra.Command{
		Use:   "lag FILE",
		Short: "List the pods whose kubelet lags, and how each owner would be restarted or why not",
		Long: "Lists every unfinished pod on a node whose kubelet minor is below its control\n" +
			"plane's, by owner, in the order in which `eksbg restart` takes them. Changes nothing.",
		Example: "  eksbg lag plans/shop-hot.yaml\n  eksbg lag plans/shop-hot.yaml --cluster green -o json",
		Args:    fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runLag(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.Var(&onceValue{to: &o.cluster}, "cluster", "look at one `SIDE` only (blue or green)")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	f.BoolVar(&o.detailed, "detailed-exitcode", false, "exit 2 when something lags")
	return cmd
}

// lagging is what lag found, side by side.
type lagging struct {
	sides []state.Side
	views map[state.Side]text.LagView
	// names are the clusters' as the plan file has them.
	names map[state.Side]string
	// unread are the clusters that could not be read while another one was, and why.
	unread map[state.Side]error
	// liveUnknown says why it could not be told which cluster has traffic; outages then
	// count as if both had it.
	liveUnknown string
	// notes are the warnings about entries of the plan file that do nothing.
	notes []state.Finding
}

func runLag(ctx context.Context, o *lagOptions) error {
	found, err := readLag(ctx, o)
	if err == nil && len(found.unread) > 0 {
		err = found.unknown()
	}
	if err == nil && o.detailed && found.any() {
		err = exitError(state.ExitPending)
	}
	if o.output == "json" {
		return found.writeJSON(o.streams, err)
	}
	if found == nil {
		return err
	}
	if found.liveUnknown != "" {
		text.Wrap(o.err, "Note: ", "      ", "the traffic could not be read, so outages are judged as if both clusters had it: "+clean(found.liveUnknown))
	}
	for i, side := range found.sides {
		if i > 0 {
			fmt.Fprintln(o.out)
		}
		if why := found.unread[side]; why != nil {
			text.Wrap(o.out, "", "", fmt.Sprintf("%s - %s - unknown, since it could not be read", side, clean(found.names[side])))
			continue
		}
		text.Lag(o.out, found.views[side])
	}
	text.Notes(o.out, found.notes)
	return err
}

// unknown is the stop for what could not be read: that it lags is not excluded.
func (l *lagging) unknown() *state.Stop {
	var sides []string
	var errs []error
	denied := true
	for _, side := range l.sides {
		if err := l.unread[side]; err != nil {
			sides, errs = append(sides, string(side)), append(errs, err)
			denied = denied && notAllowed(err)
		}
	}
	stop := &state.Stop{Code: state.ExitBlocked, Cause: errors.Join(errs...), Cure: cureNotAllowed,
		Why: fmt.Sprintf("what lags on %s is unknown", strings.Join(sides, " and "))}
	if !denied {
		stop.Cure = "check the network and the access to the cluster, then run the same command again"
	}
	return stop
}

func (l *lagging) any() bool {
	for _, v := range l.views {
		if len(v.Items) > 0 {
			return true
		}
	}
	return false
}

func readLag(ctx context.Context, o *lagOptions) (*lagging, error) {
	if o.output != "text" && o.output != "json" {
		return nil, fmt.Errorf("-o %s: text or json", o.output)
	}
	sides, err := sidesOf(o.cluster)
	if err != nil {
		return nil, err
	}
	f, err := loadPlanFile(o.path)
	if err != nil {
		return nil, err
	}
	s, err := newSession(o.streams, o.path, f)
	if err != nil {
		return nil, err
	}
	ctx, stopSignals := withSignals(ctx, o.streams, "Interrupted.")
	defer stopSignals()
	ctx = run.Reading(ctx)
	if err := s.load(ctx); err != nil {
		return nil, s.explain(ctx, err)
	}
	l, err := s.lag(ctx, sides)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return l, nil
}

// sidesOf reads --cluster; empty is both.
func sidesOf(flag string) ([]state.Side, error) {
	switch side := state.Side(flag); side {
	case "":
		return state.Sides, nil
	case state.Blue, state.Green:
		return []state.Side{side}, nil
	}
	return nil, fmt.Errorf("--cluster %s: blue or green", flag)
}

// lag reads the clusters and the weights at the same time.
func (s *session) lag(ctx context.Context, sides []state.Side) (*lagging, error) {
	l := &lagging{sides: sides, views: map[state.Side]text.LagView{}, unread: map[state.Side]error{},
		names: map[state.Side]string{state.Blue: s.file.Clusters.Blue.Name, state.Green: s.file.Clusters.Green.Name}}
	invs := map[state.Side]*cluster.Inventory{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, side := range sides {
		wg.Go(func() {
			inv, err := s.inventory(side)(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				l.unread[side] = fmt.Errorf("read the %s cluster: %w", side, err)
				return
			}
			invs[side] = inv
		})
	}
	live, lerr := s.live(ctx)
	wg.Wait()
	if err := l.over(ctx); err != nil {
		return nil, err
	}
	if lerr != nil {
		l.liveUnknown = shortly(lerr)
	}
	now := s.clock.Now()
	r := s.file.Restart
	l.notes = plan.ExpiredSkips(r, now)
	if len(l.unread) == 0 { // what is not in one cluster may be in the other
		l.notes = append(l.notes, plan.Unmatched(r, now, invs[state.Blue], invs[state.Green])...)
	}
	for _, side := range sides {
		if l.unread[side] != nil {
			continue
		}
		l.views[side] = text.LagView{Side: side, Inventory: invs[side],
			Items:     survey.Survey(invs[side], survey.Options{Now: now, Order: r.Order, Skips: r.Skip, Allow: r.Allow, Live: lerr != nil || live[side]}),
			Leftovers: s.leftovers(invs[side], side, now)}
	}
	return l, nil
}

// over is the error where the whole command ends: it was interrupted, or the credentials
// are over.
func (l *lagging) over(ctx context.Context) error {
	var errs []error
	over := ctx.Err() != nil
	for _, side := range l.sides {
		if err := l.unread[side]; err != nil {
			errs = append(errs, err)
			over = over || aws.IsExpired(err)
		}
	}
	if over {
		return errors.Join(errs...)
	}
	return nil
}

// live tells which sides have traffic.
func (s *session) live(ctx context.Context) (map[state.Side]bool, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	out := map[state.Side]bool{}
	for _, t := range s.traffic {
		share, err := t.Read(ctx)
		if err != nil {
			return nil, err
		}
		for _, side := range state.Sides {
			out[side] = out[side] || share.Percent(side) > 0
		}
	}
	return out, nil
}

// leftovers says in a sentence what finished Jobs and pods a cluster holds, and how
// they are got rid of.
func (s *session) leftovers(inv *cluster.Inventory, side state.Side, now time.Time) string {
	all := restart.Finished(inv, time.Duration(s.file.Restart.FinishedAge), now)
	if len(all) == 0 {
		return ""
	}
	switch del := all.Deletable(); len(del) {
	case 0:
		return fmt.Sprintf("%s; none may be deleted now: %s", all, all[0].Keep)
	case len(all):
		return fmt.Sprintf("%s; to delete them\n%s", all, jobsCommand(s.planPath, side, ""))
	default:
		return fmt.Sprintf("%s; to delete %d of them\n%s", all, len(del), jobsCommand(s.planPath, side, ""))
	}
}

type lagDocument struct {
	Format  int    `json:"format"`
	Command string `json:"command"`
	outcome
	Note    string                    `json:"note,omitempty"`
	Notes   []state.Finding           `json:"findings,omitempty"`
	Cluster map[state.Side]lagCluster `json:"clusters,omitempty"`
}

type lagCluster struct {
	Name string `json:"name"`
	// Unknown says why the cluster could not be read; all else is empty then.
	Unknown   string     `json:"unknown,omitempty"`
	Version   string     `json:"version"`
	Pods      int        `json:"pods"`
	Lagging   int        `json:"lagging"`
	Owners    []lagOwner `json:"owners"`
	Leftovers string     `json:"leftovers,omitempty"`
}

type lagOwner struct {
	Owner    string        `json:"owner"`
	Method   survey.Method `json:"method"`
	Stuck    bool          `json:"stuck,omitempty"`
	Skipped  bool          `json:"skipped,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Cure     string        `json:"cure,omitempty"`
	Outage   string        `json:"outage,omitempty"`
	Replicas int32         `json:"replicas"`
	Priority int32         `json:"priority,omitempty"`
	Webhooks []string      `json:"webhooks,omitempty"`
	Budgets  []string      `json:"budgets,omitempty"`
	Target   string        `json:"target"`
	Pods     []lagPod      `json:"pods"`
}

type lagPod struct {
	Name        string `json:"name"`
	Node        string `json:"node"`
	Kubelet     string `json:"kubelet"`
	Compute     string `json:"compute"`
	Phase       string `json:"phase"`
	Ready       bool   `json:"ready"`
	Terminating bool   `json:"terminating,omitempty"`
}

// writeJSON prints the one document; l may be nil.
func (l *lagging) writeJSON(s streams, err error) error {
	doc := lagDocument{Format: state.FormatVersion, Command: "lag", outcome: outcomeOf(err)}
	if l != nil {
		doc.Cluster, doc.Notes = map[state.Side]lagCluster{}, l.notes
		if l.liveUnknown != "" {
			doc.Note = "the traffic could not be read, so outages are judged as if both clusters had it: " + clean(l.liveUnknown)
		}
		for side, v := range l.views {
			doc.Cluster[side] = lagJSON(v)
		}
		for side, why := range l.unread {
			doc.Cluster[side] = lagCluster{Name: l.names[side], Unknown: clean(why.Error()), Owners: []lagOwner{}}
		}
	}
	return doc.outcome.write(s, doc)
}

func lagJSON(v text.LagView) lagCluster {
	_, pods := v.Inventory.PodCount()
	c := lagCluster{Name: v.Inventory.Name, Version: v.Inventory.Version, Pods: pods, Owners: []lagOwner{}, Leftovers: v.Leftovers}
	for _, it := range v.Items {
		c.Lagging += len(it.Pods)
		o := lagOwner{Owner: it.Owner.String(), Method: it.Method, Stuck: it.Stuck(), Skipped: it.Skipped, Reason: it.Reason, Cure: it.Cure,
			Outage: it.Outage, Replicas: it.Replicas, Priority: it.Priority, Webhooks: it.Webhooks, Budgets: it.Budgets, Target: v.Inventory.Version}
		for _, p := range it.Pods {
			n, _ := v.Inventory.Node(p.Node)
			o.Pods = append(o.Pods, lagPod{Name: p.Name, Node: p.Node, Kubelet: n.Kubelet, Compute: n.Compute, Phase: p.Phase, Ready: p.Ready, Terminating: p.Terminating})
		}
		c.Owners = append(c.Owners, o)
	}
	return c
}
