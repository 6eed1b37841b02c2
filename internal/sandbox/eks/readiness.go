package eks

import "fmt"

// removals are the minors in which Kubernetes stopped serving APIs
// (https://kubernetes.io/docs/reference/using-api/deprecation-guide/), each with one
// of them.
var removals = []struct{ minor, usage, replacement, since string }{
	{"1.25", "/apis/policy/v1beta1/podsecuritypolicies", "", ""},
	{"1.26", "/apis/autoscaling/v2beta2/horizontalpodautoscalers", "/apis/autoscaling/v2/horizontalpodautoscalers", "1.23"},
	{"1.27", "/apis/storage.k8s.io/v1beta1/csistoragecapacities", "/apis/storage.k8s.io/v1/csistoragecapacities", "1.24"},
	{"1.29", "/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "1.29"},
	{"1.32", "/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "1.29"},
}

// computed are the insights that follow from the world: about the way back, and about the
// next minor of the cluster; those about removed APIs look three minors ahead. mu is held.
func (s *Service) computed(c *cluster, kubelets []string) []*insight {
	next := plus(c.Version, 1)
	out := s.backward(c, kubelets)
	if _, ok := s.version(next); !ok {
		return out
	}
	out = append(out, s.kubeletSkew(next, kubelets), c.proxySkew(next), s.addonCompatibility(c, next), c.healthIssues(next))
	for _, r := range removals {
		if ahead := steps(c.Version, r.minor); ahead < 1 || ahead > 3 {
			continue
		}
		out = append(out, &insight{Insight: Insight{
			Name: "Deprecated APIs removed in Kubernetes v" + r.minor, Version: r.minor, Category: upgradeReadiness,
			Status: "PASSING", Reason: "No deprecated API usage detected within the last 30 days.",
			Description: fmt.Sprintf("Checks for usage of deprecated APIs that are scheduled for removal in Kubernetes v%[1]s. "+
				"Upgrading your cluster before migrating to the updated APIs supported by v%[1]s could cause application impact.", r.minor),
			Recommendation: fmt.Sprintf("Update manifests and API clients to use newer Kubernetes APIs if applicable "+
				"before upgrading to Kubernetes v%s.", r.minor),
			Deprecations: []Deprecation{{
				Usage: r.usage, ReplacedWith: r.replacement, StopServing: r.minor, StartServingReplacement: r.since,
			}},
		}})
	}
	return out
}

func (s *Service) kubeletSkew(next string, kubelets []string) *insight {
	i := &insight{Insight: Insight{
		Name: "Kubelet version skew", Version: next, Category: upgradeReadiness, Status: "PASSING",
		Reason: "Node kubelet versions match the supported skew of the next cluster control plane version.",
		Description: "Checks for kubelet versions of worker nodes in the cluster to see if upgrade would cause " +
			"non compliance with supported Kubernetes kubelet version skew policy.",
		Recommendation: "Upgrade your worker nodes, or recycle your Fargate pods, to match the version of your cluster control plane.",
	}}
	if s.opts.Kubelets == nil {
		i.Status, i.Reason = "UNKNOWN", "Unable to determine status of node kubelet versions."
		return i
	}
	var behind []string
	for _, k := range kubelets {
		if minor := minorOf(k); minor == "" || skewed(minor, next) {
			behind = append(behind, k)
		}
	}
	if len(behind) > 0 {
		i.Status = "ERROR"
		i.Reason = fmt.Sprintf("Kubelet versions %s of worker nodes are outside the supported skew of Kubernetes v%s.", joined(behind), next)
	}
	return i
}

func (c *cluster) proxySkew(next string) *insight {
	i := &insight{Insight: Insight{
		Name: "kube-proxy version skew", Version: next, Category: upgradeReadiness, Status: "PASSING",
		Reason: "kube-proxy versions match the cluster control plane version.",
		Description: "Checks version of kube-proxy in cluster to see if upgrade would cause non compliance with " +
			"supported Kubernetes kube-proxy version skew policy.",
		Recommendation: "Upgrade kube-proxy to match the version of your cluster control plane.",
	}}
	if a := c.addons["kube-proxy"]; a != nil && skewed(minorOf(a.Version), next) {
		i.Status = "ERROR"
		i.Reason = fmt.Sprintf("kube-proxy version %s is outside the supported skew of Kubernetes v%s.", a.Version, next)
	}
	return i
}

func (s *Service) addonCompatibility(c *cluster, next string) *insight {
	i := &insight{addons: []addonCompatJSON{}, Insight: Insight{
		Name: "EKS add-on version compatibility", Version: next, Category: upgradeReadiness, Status: "PASSING",
		Reason:         "All installed EKS add-on versions are compatible with next Kubernetes version.",
		Description:    "Checks version of installed EKS add-ons to ensure they are compatible with the next version of Kubernetes.",
		Recommendation: "Upgrade the add-ons to a version that is compatible with the next version of Kubernetes before upgrading the cluster.",
	}}
	bad := s.incompatible(c, next, i)
	if len(bad) > 0 {
		i.Status = "ERROR"
		i.Reason = fmt.Sprintf("Installed EKS add-on versions are not compatible with Kubernetes v%s: %s.", next, joined(bad))
	}
	return i
}

func (c *cluster) healthIssues(next string) *insight {
	i := &insight{Insight: Insight{
		Name: "Cluster health issues", Version: next, Category: upgradeReadiness, Status: "PASSING",
		Reason:         "No cluster health issues detected.",
		Description:    "Checks for any cluster health issues that prevent successful upgrade to the next Kubernetes version on EKS.",
		Recommendation: "Resolve the health issues of the cluster before upgrading it.",
	}}
	if len(c.Issues) > 0 {
		var codes []string
		for _, issue := range c.Issues {
			codes = append(codes, issue.Code)
		}
		i.Status, i.Reason = "ERROR", "Cluster health issues detected: "+joined(codes)+"."
	}
	return i
}
