// Package fargate reads what a cluster's Fargate profiles have room for: free
// addresses in their subnets, and what is left of the account's quotas.
package fargate

// Unknown is a limit that could not be read. It bounds nothing, and is no pass either:
// who goes on with it has been told (Room.Missing).
const Unknown = -1

// Room is what is left at one moment. It is an upper bound: what others in the account
// start meanwhile takes from the same addresses and quotas.
type Room struct {
	// Addresses are the free addresses of the subnets of each Fargate profile, by its
	// name; a profile that could not be read is Unknown, and so is one that is not here.
	// Profiles may share subnets: Subnets says which.
	Addresses map[string]int
	// Subnets are the subnets of each profile, Free the free addresses of each subnet;
	// Unknown where EC2 did not tell.
	Subnets map[string][]string
	Free    map[string]int
	// MilliCPU is what is left of the vCPU quota (L-3032A538) in thousandths, less what
	// the clusters that were counted use; Unknown where it could not be read.
	MilliCPU int
	// Burst and PerSecond are how many pods Fargate launches at once and then each second
	// (accounts that run EKS pods only: 20 and 20); Unknown where they could not be read.
	Burst, PerSecond int
	// Missing says in a sentence each what could not be read and why.
	Missing []string
}
