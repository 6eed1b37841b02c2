package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// AccessCheck begins the names of the findings about what the caller may not do:
// access/patch/deployments.apps. AccessUnknown is the one about what is not known.
const (
	AccessCheck   = "access/"
	AccessUnknown = AccessCheck + "unknown"
)

// Access asks a cluster's API server whether its caller may do all that the plan's steps
// will, so that a gap is found before the first of them and not in the middle of the
// night. Each verb and resource is asked about once for all namespaces; only where that is
// denied, for each namespace that the steps touch. What is denied is an ERROR of its own;
// what may not be asked, or is not told, is UNKNOWN; an API server that is away or fails is an
// error, and so is one that does not take the credentials.
func Access(side state.Side, name string, need []state.Access, open func(context.Context) (kubernetes.Interface, error)) Check {
	return Check{Name: "what may be done in " + string(side), Run: func(ctx context.Context) ([]state.Finding, error) {
		k, err := open(ctx)
		if err != nil {
			return nil, fmt.Errorf("reach cluster %s to ask what is allowed: %w", name, err)
		}
		gaps, unsure, err := ask(ctx, k, need)
		if err != nil && (ctx.Err() != nil || !apierrors.IsForbidden(err)) {
			return nil, fmt.Errorf("ask what is allowed in cluster %s: %w", name, err)
		}
		if err == nil && len(gaps)+len(unsure) == 0 {
			return nil, nil
		}
		user := "the caller"
		if err == nil { // otherwise it would be waited for once more
			if known, whoErr := cluster.Caller(ctx, k); whoErr == nil && known != "" {
				user = state.Clean(known)
			}
		}
		return report(side, name, user, gaps, unsure, err), nil
	}}
}

// ask gives what is denied, with the namespaces where it is, and what the API server is not
// sure about.
func ask(ctx context.Context, k kubernetes.Interface, need []state.Access) (gaps []state.Access, unsure []string, err error) {
	first := make([]cluster.Question, len(need))
	for i, n := range need {
		first[i] = question(n, "")
		if len(n.Namespaces) == 1 {
			first[i].Namespace = n.Namespaces[0]
		}
	}
	answers, err := cluster.May(ctx, k, first)
	if err != nil {
		return nil, nil, err
	}
	var again []cluster.Question
	var of []int
	for i, a := range answers {
		switch {
		case a.Allowed:
		case a.Unsure != "":
			unsure = append(unsure, fmt.Sprintf("%s: %s", first[i], a.Unsure))
		case len(need[i].Namespaces) > 1:
			for _, ns := range need[i].Namespaces {
				again, of = append(again, question(need[i], ns)), append(of, i)
			}
		default:
			gaps = append(gaps, need[i])
		}
	}
	answers, err = cluster.May(ctx, k, again)
	if err != nil {
		return nil, nil, err
	}
	denied := map[int][]string{}
	for j, a := range answers {
		switch {
		case a.Allowed:
		case a.Unsure != "":
			unsure = append(unsure, fmt.Sprintf("%s: %s", again[j], a.Unsure))
		default:
			denied[of[j]] = append(denied[of[j]], again[j].Namespace)
		}
	}
	for i, n := range need {
		if len(denied[i]) > 0 {
			n.Namespaces = denied[i]
			gaps = append(gaps, n)
		}
	}
	return gaps, unsure, nil
}

func question(n state.Access, namespace string) cluster.Question {
	group, resource, sub := n.Split()
	return cluster.Question{Verb: n.Verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: n.Name}
}

// report makes findings of what is denied and of what is not known.
func report(side state.Side, name, user string, gaps []state.Access, unsure []string, err error) []state.Finding {
	var out []state.Finding
	if err != nil {
		unsure = []string{err.Error()}
	}
	if len(unsure) > 0 {
		out = append(out, state.Finding{Check: AccessUnknown, Severity: state.SeverityUnknown, Side: side,
			Text: fmt.Sprintf("whether %s may do in cluster %s what the steps need is not known: %s", user, name, state.Clean(strings.Join(unsure, "; "))),
			Cure: "let it create selfsubjectaccessreviews.authorization.k8s.io, as ClusterRole system:basic-user does for everybody"})
	}
	slices.SortStableFunc(gaps, func(a, b state.Access) int { return strings.Compare(a.Resource+" "+a.Verb, b.Resource+" "+b.Verb) })
	for i, g := range gaps {
		f := state.Finding{Check: AccessCheck + g.Verb + "/" + g.Resource, Severity: state.SeverityError, Side: side,
			Text: fmt.Sprintf("%s may not %s %s, needed for: %s", user, g, where(g, name), g.For), Cure: rule(g)}
		if i == 0 {
			f.Cure = "add these rules to a ClusterRole (or to a Role in each of the namespaces) of a group of the caller's access entry; docs/permissions.md has all:\n" + f.Cure
		}
		out = append(out, f)
	}
	return out
}

// where says in which namespaces of a cluster something is denied.
func where(g state.Access, name string) string {
	const most = 5
	list := func(namespaces []string) string { return state.Clean(strings.Join(namespaces, ", ")) }
	switch n := len(g.Namespaces); {
	case n == 0:
		return "in cluster " + name
	case n == 1:
		return fmt.Sprintf("in namespace %s of cluster %s", list(g.Namespaces), name)
	case n > most:
		return fmt.Sprintf("in namespaces %s and %d more of cluster %s", list(g.Namespaces[:most]), n-most, name)
	}
	return fmt.Sprintf("in namespaces %s of cluster %s", list(g.Namespaces), name)
}

// rule is what allows it, as a line of a Role's or ClusterRole's rules, short enough for
// a terminal.
func rule(g state.Access) string {
	group, resource, sub := g.Split()
	if sub != "" {
		resource += "/" + sub
	}
	if group == "" {
		group = `""`
	}
	names := ""
	if g.Name != "" {
		names = ", resourceNames: [" + g.Name + "]"
	}
	return fmt.Sprintf("- {apiGroups: [%s], resources: [%s]%s, verbs: [%s]}", group, resource, names, g.Verb)
}
