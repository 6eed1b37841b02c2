// Package edge is the data plane of the sandbox: what users of the service meet.
//
// Every simulated load balancer and every member behind a weighted record answers
// HTTP on a loopback address of its own, all on one shared port, as the weights
// and the clusters say at that moment; and a DNS server answers for the zones by
// what is in sync. The package knows no AWS service: it asks through functions.
package edge
