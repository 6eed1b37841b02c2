// Package cluster reaches one EKS cluster (client-go configuration from
// DescribeCluster, a token that renews itself, no kubeconfig) and reads it in one
// pass: version, updates in progress, nodes with the minor of their kubelet, pods
// with node, phase and top owner, workloads, Jobs, disruption budgets, webhooks and who
// serves them.
//
// It reads with paged lists, one per resource, never one per workload, and keeps
// only what eksbg uses: objects are pruned as they arrive, before they are decoded.
package cluster
