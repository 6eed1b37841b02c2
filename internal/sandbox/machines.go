package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// machines are the instances of a cluster's node groups.
type machines struct {
	mu sync.Mutex
	// made is how many there have been, so that no name comes twice.
	made int
	// busy is held, group by group, while instances come and go.
	busy map[string]*sync.Mutex
}

const (
	labelNodegroup = "eks.amazonaws.com/nodegroup"
	labelImage     = "eks.amazonaws.com/nodegroup-image"
)

// group is the lock of a node group.
func (m *machines) group(name string) *sync.Mutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy == nil {
		m.busy = map[string]*sync.Mutex{}
	}
	if m.busy[name] == nil {
		m.busy[name] = &sync.Mutex{}
	}
	return m.busy[name]
}

// address is one that no instance had: subnets from one to the next, each from its end,
// which Fargate comes to last.
func (c *cluster) address() (netip.Addr, string, error) {
	c.machines.mu.Lock()
	n := c.machines.made
	c.machines.made++
	c.machines.mu.Unlock()
	in := c.in.Subnets[n%len(c.in.Subnets)]
	p, err := netip.ParsePrefix(in.CIDR)
	if err != nil {
		return netip.Addr{}, "", fmt.Errorf("subnet %s: %w", in.ID, err)
	}
	b := p.Masked().Addr().As4()
	last := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) | (1<<(32-p.Bits()) - 1)
	last -= uint32(2 + n/len(c.in.Subnets)) //nolint:gosec // far from its bounds
	return netip.AddrFrom4([4]byte{byte(last >> 24), byte(last >> 16), byte(last >> 8), byte(last)}), in.Zone, nil
}

// addNode has an instance of a group join its cluster, ready.
func (c *cluster) addNode(s *Scenario, g eks.Nodegroup) error {
	ip, zone, err := c.address()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("ip-%s.%s.compute.internal", strings.ReplaceAll(ip.String(), ".", "-"), s.Region)
	if s.Region == "us-east-1" {
		name = strings.Replace(name, "us-east-1.compute", "ec2", 1)
	}
	n, ok := Node{Name: name, Kubelet: g.Version, Zone: zone}.object(g.Version).(*corev1.Node)
	if !ok {
		return fmt.Errorf("make node %s: it is no Node", name)
	}
	maps.Copy(n.Labels, g.Labels)
	n.Labels[labelNodegroup], n.Labels[labelImage], n.Labels["eks.amazonaws.com/capacityType"] = g.Name, g.Release, "ON_DEMAND"
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip.String()}, {Type: corev1.NodeHostName, Address: name}}
	for _, t := range g.Taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: effects[t.Effect]})
	}
	return c.kube.Create(n)
}

// effects are what EKS's words for the effects of taints are in Kubernetes
// (https://docs.aws.amazon.com/eks/latest/APIReference/API_Taint.html).
var effects = map[string]corev1.TaintEffect{
	"NO_SCHEDULE": corev1.TaintEffectNoSchedule, "NO_EXECUTE": corev1.TaintEffectNoExecute, "PREFER_NO_SCHEDULE": corev1.TaintEffectPreferNoSchedule,
}

// crew works on the instances of one node group, for one request.
type crew struct {
	*cluster
	scenario *Scenario
	group    eks.Nodegroup
	force    bool
}

// SetNodes implements eks.World: instances are replaced one after the other, each after
// its pods were evicted as their budgets allow; then there are as many as are wanted. Of
// an update that fails the instances that were replaced stay so, and so does the new one
// that stood in for the one that could not be drained, if pods have moved to it: what EKS
// does there is not known.
func (b behind) SetNodes(ctx context.Context, w eks.NodegroupWork) []eks.UpdateError {
	c := b.s.cluster(w.Cluster)
	if c == nil {
		return nil // deleted meanwhile
	}
	lock := c.machines.group(w.Nodegroup.Name)
	lock.Lock()
	defer lock.Unlock()
	work := &crew{c, b.s.scenario, w.Nodegroup, w.Force}
	var err error
	if w.Replace {
		err = work.replace(ctx)
	}
	if err == nil {
		err = work.resize(ctx)
	}
	if err == nil {
		return nil
	}
	e := eks.UpdateError{Code: "NodeCreationFailure", Message: err.Error()}
	if stuck, ok := err.(*stuckNode); ok { //nolint:errorlint // it is never wrapped here
		e = eks.UpdateError{
			Code: "PodEvictionFailure", ResourceIDs: []string{stuck.node},
			Message: "Reached max retries while trying to evict pods from nodes in node group " + w.Nodegroup.Name,
		}
	}
	return []eks.UpdateError{e}
}

// stuckNode is a node whose pods did not go.
type stuckNode struct{ node string }

func (e *stuckNode) Error() string { return "pods of node " + e.node + " could not be evicted" }

// replace puts an instance with the group's image in the place of each that has another.
func (w *crew) replace(ctx context.Context) error {
	nodes, err := w.nodes(ctx)
	if err != nil {
		return err
	}
	for _, old := range nodes {
		if old.Labels[labelImage] == w.group.Release && old.Status.NodeInfo.KubeletVersion == kube.Kubelet(w.group.Version) {
			continue
		}
		if err := w.join(ctx); err != nil {
			return err
		}
		if err := w.retire(ctx, old.Name); err != nil {
			return err
		}
	}
	return nil
}

// resize makes as many instances as are wanted. Those that go are drained for as long as
// an update would try, and then go anyway, as an Auto Scaling group has it.
func (w *crew) resize(ctx context.Context) error {
	nodes, err := w.nodes(ctx)
	if err != nil {
		return err
	}
	for range w.group.Desired - len(nodes) {
		if err := w.join(ctx); err != nil {
			return err
		}
	}
	for i := len(nodes) - 1; i >= w.group.Desired; i-- {
		w.force = true
		if err := w.retire(ctx, nodes[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// join waits for an instance to come up and adds it.
func (w *crew) join(ctx context.Context) error {
	if err := pause(ctx, w.scenario.Durations.NodeStartup); err != nil {
		return err
	}
	return w.addNode(w.scenario, w.group)
}

// retire drains a node and deletes it.
func (w *crew) retire(ctx context.Context, node string) error {
	if err := w.cordon(ctx, node, true); err != nil {
		return err
	}
	if err := w.drain(ctx, node); err != nil {
		if back := w.cordon(ctx, node, false); back != nil {
			return back
		}
		return err
	}
	if err := w.call(ctx, http.MethodDelete, "/api/v1/nodes/"+node, mediaJSON, "", nil); err != nil {
		return err
	}
	// What was left on it are DaemonSets' pods, which nothing stops without their kubelet.
	left, err := w.podsOn(ctx, node)
	if err != nil {
		return err
	}
	for _, p := range left {
		if err := w.remove(ctx, &p, `{"gracePeriodSeconds":0}`); err != nil {
			return err
		}
	}
	return nil
}

func (w *crew) cordon(ctx context.Context, node string, on bool) error {
	return w.call(ctx, http.MethodPatch, "/api/v1/nodes/"+node, mediaMerge, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, on), nil)
}

// drain evicts the pods of a node, again and again while their budgets do not allow it,
// and in the end deletes them when it is forced to.
func (w *crew) drain(ctx context.Context, node string) error {
	limit := time.Now().Add(w.scenario.Durations.Drain)
	for {
		left, err := w.leaving(ctx, node)
		if err != nil || len(left) == 0 {
			return err
		}
		late := time.Now().After(limit)
		if late && !w.force {
			return &stuckNode{node}
		}
		for _, p := range left {
			if p.DeletionTimestamp != nil {
				continue
			}
			if late {
				err = w.remove(ctx, &p, "")
			} else {
				w.evict(ctx, &p)
			}
			if err != nil {
				return err
			}
		}
		if err := pause(ctx, max(w.scenario.Durations.Drain/90, 10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// evict asks a pod to go; that its budget says no is asked again.
func (w *crew) evict(ctx context.Context, p *corev1.Pod) {
	body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":%q,"name":%q}}`, p.Namespace, p.Name)
	_ = w.call(ctx, http.MethodPost, pathOf(p)+"/eviction", mediaJSON, body, nil)
}

// remove deletes a pod; options is a DeleteOptions or nothing.
func (c *cluster) remove(ctx context.Context, p *corev1.Pod, options string) error {
	err := c.call(ctx, http.MethodDelete, pathOf(p), mediaJSON, options, nil)
	if err != nil && strings.Contains(err.Error(), "answers 404") {
		return nil
	}
	return err
}

func pathOf(p *corev1.Pod) string { return "/api/v1/namespaces/" + p.Namespace + "/pods/" + p.Name }

// leaving are the pods of a node that a drain is about: no DaemonSet's, no mirrors, none
// that have finished.
func (w *crew) leaving(ctx context.Context, node string) ([]corev1.Pod, error) {
	all, err := w.podsOn(ctx, node)
	return slices.DeleteFunc(all, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		return mirror || owner != nil && owner.Kind == "DaemonSet" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), err
}

func (c *cluster) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	return c.pods(ctx, "fieldSelector="+url.QueryEscape("spec.nodeName="+node))
}

// pods lists the pods of all namespaces that a query selects.
func (c *cluster) pods(ctx context.Context, query string) ([]corev1.Pod, error) {
	var list struct {
		Items []corev1.Pod `json:"items"`
	}
	err := c.call(ctx, http.MethodGet, "/api/v1/pods?"+query, mediaJSON, "", &list)
	return list.Items, err
}

// nodes are the instances of the group, the oldest first.
func (w *crew) nodes(ctx context.Context) ([]corev1.Node, error) {
	var raw json.RawMessage
	if err := w.call(ctx, http.MethodGet, "/api/v1/nodes?labelSelector="+url.QueryEscape(labelNodegroup+"="+w.group.Name), mediaJSON, "", &raw); err != nil {
		return nil, err
	}
	var list corev1.NodeList
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	// Addresses are handed out from the end of the subnets.
	slices.SortStableFunc(list.Items, func(a, b corev1.Node) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(b.Name, a.Name)
	})
	return list.Items, nil
}

// pause waits, or fails when ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
