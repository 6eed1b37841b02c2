package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// serviceKey names a service.
type serviceKey struct{ namespace, name string }

func (s serviceKey) String() string { return s.namespace + "/" + s.name }

// hooks are the fail-closed webhooks of a cluster and, while pods are read, the
// owners of the pods behind their services.
type hooks struct {
	list []hook
	// places are where the services that choose pods are in behind, which holds the
	// direct owners of these pods; -1 for a service that chooses none.
	places  map[serviceKey]int
	chooses selection
	behind  []map[Owner]bool
}

// hook is one webhook and its service.
type hook struct {
	Webhook
	service serviceKey
}

// add enters a webhook if it is fail-closed (failurePolicy Fail, which is also the
// default of admissionregistration.k8s.io/v1) and served by a service of the cluster;
// one that is reached by URL does not hang on the cluster's pods.
func (h *hooks) add(configuration, name string, policy *admissionv1.FailurePolicyType, client admissionv1.WebhookClientConfig) {
	if client.Service == nil || policy != nil && *policy != admissionv1.Fail {
		return
	}
	service := serviceKey{client.Service.Namespace, client.Service.Name}
	h.list = append(h.list, hook{Webhook{Configuration: configuration, Name: name, Service: service.String()}, service})
}

// serve enters a service; nil is one that is not there. One without a selector has
// its endpoints from somewhere else, which tells nothing about pods.
func (h *hooks) serve(service serviceKey, s *corev1.Service) {
	if s == nil || len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		h.places[service] = -1
		return
	}
	h.places[service] = len(h.behind)
	h.chooses.add(service.namespace, labels.SelectorFromSet(s.Spec.Selector), len(h.behind))
	h.behind = append(h.behind, map[Owner]bool{})
}

// reset forgets the pods that were seen.
func (h *hooks) reset() {
	for i := range h.behind {
		h.behind[i] = map[Owner]bool{}
	}
}

// see enters an unfinished pod's direct owner behind the services that choose the pod.
func (h *hooks) see(p Pod, set labels.Set) {
	if p.Finished {
		return
	}
	for _, at := range h.chooses.of(p.Namespace, set) {
		h.behind[at][p.Owner] = true
	}
}

// done are the webhooks with the top owners of their pods, in the order of names.
func (h *hooks) done(who *owners) []Webhook {
	served := make([][]Owner, len(h.behind))
	for i := range h.behind {
		var top []Owner
		for o := range h.behind[i] {
			top = append(top, who.top(o))
		}
		slices.SortFunc(top, func(a, b Owner) int {
			return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.UID, b.UID))
		})
		served[i] = slices.Compact(top)
	}
	var out []Webhook
	for _, w := range h.list {
		if at := h.places[w.service]; at >= 0 {
			w.Owners = served[at]
		}
		out = append(out, w.Webhook)
	}
	return out
}

// readServices reads the services that the webhooks call.
func (c *Client) readServices(ctx context.Context, h *hooks) error {
	h.places = map[serviceKey]int{}
	for _, w := range h.list {
		if _, ok := h.places[w.service]; ok {
			continue
		}
		s, err := c.kube.CoreV1().Services(w.service.namespace).Get(ctx, w.service.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			// The webhook fails whatever is restarted.
			s = nil
		case apierrors.IsForbidden(err):
			return forbidden("get", "services", w.service.namespace, c.name, err)
		case err != nil:
			return fmt.Errorf("read service %s, which webhooks of cluster %s call: %w", w.service, c.name, err)
		}
		h.serve(w.service, s)
	}
	return nil
}
