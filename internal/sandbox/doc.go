// Package sandbox is the embedded world in which eksbg can be tried, tested and
// killed without an AWS account: EKS, Route 53, ELBv2 and STS, two Kubernetes
// clusters on Fargate, a data plane and DNS, all behind real sockets on loopback
// and in the real wire protocols. Any client that takes its endpoints from the
// environment can talk to it.
//
// A Scenario is what the world looks like at first and how it behaves; Load reads
// one, Start serves it, and Serve does what `eksbg sandbox` needs. The package
// imports nothing of eksbg's core and nothing of the core imports it.
package sandbox
