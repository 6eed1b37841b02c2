// Package cluster reaches one EKS cluster (client-go configuration from
// DescribeCluster, a token that renews itself, no kubeconfig) and reads it in one
// pass: version, updates in progress, nodes with the minor of their kubelet, pods
// with node, phase and top owner, workloads.
//
// It reads with paged lists, one per resource, never one per workload, and keeps
// only what eksbg uses.
package cluster
