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
	list []Webhook
	// at are the places in list of the webhooks of a service.
	at map[serviceKey][]int
	// services are those that choose pods; behind holds, by their place in it, the
	// direct owners of these pods.
	services []serviceKey
	chooses  selection
	behind   []map[Owner]bool
}

// add enters a webhook if it is fail-closed (failurePolicy Fail, which is also the
// default of admissionregistration.k8s.io/v1) and served by a service of the cluster;
// one that is reached by URL does not hang on the cluster's pods.
func (h *hooks) add(configuration, name string, policy *admissionv1.FailurePolicyType, client admissionv1.WebhookClientConfig) {
	if client.Service == nil || policy != nil && *policy != admissionv1.Fail {
		return
	}
	service := serviceKey{client.Service.Namespace, client.Service.Name}
	if h.at == nil {
		h.at = map[serviceKey][]int{}
	}
	h.at[service] = append(h.at[service], len(h.list))
	h.list = append(h.list, Webhook{Configuration: configuration, Name: name, Service: service.String()})
}

// serve enters the selector of a service. A service without one has its endpoints
// from somewhere else, which tells nothing about pods.
func (h *hooks) serve(service serviceKey, s *corev1.Service) {
	if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	h.chooses.add(service.namespace, labels.SelectorFromSet(s.Spec.Selector), len(h.services))
	h.services = append(h.services, service)
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
	for i, service := range h.services {
		var top []Owner
		for o := range h.behind[i] {
			top = append(top, who.top(o))
		}
		slices.SortFunc(top, func(a, b Owner) int { return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.UID, b.UID)) })
		top = slices.Compact(top)
		for _, at := range h.at[service] {
			h.list[at].Owners = top
		}
	}
	return h.list
}

// readHooks lists the webhook configurations and reads the services behind those
// that are fail-closed; there are few of them, so that one request each is less than
// all services of the cluster.
func (c *Client) readHooks(ctx context.Context) (*hooks, error) {
	h := &hooks{}
	admission := c.kube.AdmissionregistrationV1()
	err := pages(ctx, c.name, "validatingwebhookconfigurations.admissionregistration.k8s.io", admission.ValidatingWebhookConfigurations().List,
		func() { *h = hooks{} },
		func(l *admissionv1.ValidatingWebhookConfigurationList) {
			for i := range l.Items {
				for _, w := range l.Items[i].Webhooks {
					h.add(l.Items[i].Name, w.Name, w.FailurePolicy, w.ClientConfig)
				}
			}
		})
	if err != nil {
		return nil, err
	}
	m := &hooks{}
	err = pages(ctx, c.name, "mutatingwebhookconfigurations.admissionregistration.k8s.io", admission.MutatingWebhookConfigurations().List,
		func() { *m = hooks{} },
		func(l *admissionv1.MutatingWebhookConfigurationList) {
			for i := range l.Items {
				for _, w := range l.Items[i].Webhooks {
					m.add(l.Items[i].Name, w.Name, w.FailurePolicy, w.ClientConfig)
				}
			}
		})
	if err != nil {
		return nil, err
	}
	h.join(m)
	for service := range h.at {
		s, err := c.kube.CoreV1().Services(service.namespace).Get(ctx, service.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			// The webhook fails whatever is restarted.
			continue
		case apierrors.IsForbidden(err):
			return nil, forbidden("get", "services", c.name, err)
		case err != nil:
			return nil, fmt.Errorf("read service %s, which webhooks of cluster %s call: %w", service, c.name, err)
		}
		h.serve(service, s)
	}
	return h, nil
}

// join takes over the webhooks of another list.
func (h *hooks) join(other *hooks) {
	if h.at == nil {
		h.at = map[serviceKey][]int{}
	}
	for service, places := range other.at {
		for _, at := range places {
			h.at[service] = append(h.at[service], len(h.list)+at)
		}
	}
	h.list = append(h.list, other.list...)
}
