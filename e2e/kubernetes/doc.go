// Package kubernetes starts real control planes as child processes: etcd,
// kube-apiserver and kube-controller-manager, out of one binary that it builds from the
// module beside it and keeps in a cache.
package kubernetes
