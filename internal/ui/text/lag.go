package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// LagView is one cluster as `eksbg lag` shows it.
type LagView struct {
	Side      state.Side
	Inventory *cluster.Inventory
	// Items are the owners of lagging pods in the order in which they are restarted.
	Items []survey.Item
	// Leftovers says what finished Jobs and pods there are and, on a line of its own, the
	// command that deletes them; empty for none.
	Leftovers string
}

// lagPods is how many pods of an owner are named; -o json names all.
const lagPods = 3

// Lag renders what lags on a cluster, owner by owner, and how each is restarted or why
// not.
func Lag(w io.Writer, v LagView) {
	inv := v.Inventory
	_, all := inv.PodCount()
	Wrap(w, "", "", fmt.Sprintf("%s - %s - control plane, and so the kubelets' target, %s", v.Side, state.Clean(inv.Name), inv.Version))
	if len(v.Items) == 0 {
		Wrap(w, "", "", fmt.Sprintf("Nothing lags: %s, none on a kubelet below %s.", count(all, "pod"), inv.Version))
	} else {
		Wrap(w, "", "", lagSummary(v.Items, all))
		fmt.Fprintf(w, "\n%3s  %-43s %4s  %-7s %s\n", "#", "owner", "pods", "kubelet", "how")
		for i, it := range v.Items {
			lagItem(w, i+1, inv, it)
		}
	}
	if v.Leftovers != "" {
		fmt.Fprintln(w)
		Cure(w, "", "", v.Leftovers)
	}
}

// Notes renders findings that are about the plan file, each with its cure.
func Notes(w io.Writer, found []state.Finding) {
	for i, f := range found {
		if i == 0 {
			fmt.Fprintln(w)
		}
		Wrap(w, strings.ToUpper(string(f.Severity))+"  ", "      ", state.Clean(f.Check+": "+f.Text))
		if f.Cure != "" {
			Cure(w, "      cure: ", "      ", state.Clean(f.Cure))
		}
	}
}

func lagSummary(items []survey.Item, all int) string {
	pods := 0
	n := map[string]int{}
	for _, it := range items {
		pods += len(it.Pods)
		n[fate(it)]++
	}
	var parts []string
	for _, f := range []string{"to restart", "waited for", "skipped", "stuck"} {
		if n[f] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[f], f))
		}
	}
	return fmt.Sprintf("%d of %s lag; %s: %s.", pods, count(all, "pod"), count(len(items), "owner"), strings.Join(parts, ", "))
}

func fate(it survey.Item) string {
	switch {
	case it.Skipped:
		return "skipped"
	case it.Stuck():
		return "stuck"
	case it.Waits():
		return "waited for"
	}
	return "to restart"
}

// How says the method of an item in at most 16 columns.
func How(it survey.Item) string {
	switch {
	case it.Skipped:
		return "skipped"
	case it.Stuck():
		return "STUCK"
	}
	switch it.Method {
	case survey.Evict:
		return "one by one"
	case survey.InOrder:
		return "in order"
	case survey.RestartAt:
		return "spec.restartAt"
	case survey.Surge:
		return "one more first"
	case survey.Recreate:
		return "made anew"
	case survey.Wait:
		return "waited for"
	}
	return string(it.Method)
}

func lagItem(w io.Writer, n int, inv *cluster.Inventory, it survey.Item) {
	owner := state.Clean(it.Owner.String())
	line := fmt.Sprintf("%3d  %-43s %4d  %-7s %s", n, owner, len(it.Pods), lowest(inv, it), How(it))
	if len(owner) > 43 { // a long name has a line of its own
		fmt.Fprintf(w, "%3d  %s\n", n, owner)
		line = fmt.Sprintf("%48s %4d  %-7s %s", "", len(it.Pods), lowest(inv, it), How(it))
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
	const indent = "       "
	for _, s := range lagNotes(it) {
		Wrap(w, indent, indent+"  ", s)
	}
	if it.Cure != "" {
		Wrap(w, indent+"cure: ", indent+"  ", state.Clean(it.Cure))
	}
	for i, p := range it.Pods {
		if i == lagPods && len(it.Pods) > lagPods+1 {
			fmt.Fprintf(w, "%sand %d more\n", indent, len(it.Pods)-i)
			break
		}
		n, _ := inv.Node(p.Node)
		node, _, _ := strings.Cut(state.Clean(p.Node), ".")
		fmt.Fprintln(w, strings.TrimRight(indent+clip(fmt.Sprintf("%-24s %-5s %s", node, n.Minor, p.Name), Width-len(indent)), " "))
	}
}

// lagNotes are the sentences about an item, beside its cure.
func lagNotes(it survey.Item) []string {
	var out []string
	if it.Reason != "" {
		out = append(out, state.Clean(it.Reason))
	}
	if len(it.Webhooks) > 0 {
		out = append(out, state.Clean("serves webhook "+strings.Join(it.Webhooks, ", ")))
	}
	if it.Outage != "" {
		out = append(out, state.Clean("outage: "+it.Outage))
	}
	return out
}

// lowest is the oldest kubelet minor under the pods of an item.
func lowest(inv *cluster.Inventory, it survey.Item) string {
	low := ""
	for _, p := range it.Pods {
		n, ok := inv.Node(p.Node)
		if ok && n.Minor != "" && (low == "" || cluster.CompareMinor(n.Minor, low) < 0) {
			low = n.Minor
		}
	}
	return low
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
