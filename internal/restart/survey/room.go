package survey

import (
	"slices"

	"github.com/eksbg/eksbg/internal/fargate"
)

// places tells whether that many pods of each Fargate profile find addresses at the same
// time, when profiles share subnets and each pod goes where there is room. A profile
// whose subnets could not be read places any number.
func places(room fargate.Room, pods map[string]int) bool {
	m := matching{subnets: map[string][]string{}, free: map[string]int{}, used: map[string]map[string]int{}}
	wanted := 0
	for profile, n := range pods {
		if n <= 0 || free(room, profile) == fargate.Unknown {
			continue
		}
		wanted += n
		m.subnets[profile] = subnets(room, profile)
		for _, s := range m.subnets[profile] {
			m.free[s] = freeIn(room, profile, s)
			m.used[s] = map[string]int{}
		}
	}
	if total := sum(m.free); wanted > total {
		return false
	}
	for profile := range m.subnets {
		for range pods[profile] {
			if !m.place(profile, map[string]bool{}) {
				return false
			}
		}
	}
	return true
}

// matching puts pods into subnets, moving those of other profiles where it has to
// (augmenting paths).
type matching struct {
	subnets map[string][]string
	free    map[string]int
	// used are the pods in a subnet by profile.
	used map[string]map[string]int
}

// place finds room for one more pod of the profile; seen are the subnets tried already.
func (m *matching) place(profile string, seen map[string]bool) bool {
	for _, s := range m.subnets[profile] {
		if m.free[s] > 0 {
			m.free[s]--
			m.used[s][profile]++
			return true
		}
	}
	for _, s := range m.subnets[profile] {
		if seen[s] {
			continue
		}
		seen[s] = true
		for other, n := range m.used[s] {
			if other != profile && n > 0 && m.place(other, seen) {
				m.used[s][other]--
				m.used[s][profile]++
				return true
			}
		}
	}
	return false
}

// free are the addresses that a profile's subnets have left; Unknown where that could
// not be read.
func free(room fargate.Room, profile string) int {
	if n, ok := room.Addresses[profile]; ok {
		return n
	}
	return fargate.Unknown
}

// subnets are those of a profile; one that does not say has one of its own.
func subnets(room fargate.Room, profile string) []string {
	if s := room.Subnets[profile]; len(s) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(s)))
	}
	return []string{"profile " + profile}
}

// freeIn are the free addresses of one subnet of a profile.
func freeIn(room fargate.Room, profile, subnet string) int {
	if n, ok := room.Free[subnet]; ok {
		return max(n, 0)
	}
	if len(room.Subnets[profile]) > 0 {
		return 0
	}
	return max(free(room, profile), 0)
}

// shared are the pods, of those counted, that may use the profile's subnets.
func shared(room fargate.Room, profile string, pods map[string]int) int {
	own := subnets(room, profile)
	n := 0
	for other, count := range pods {
		if free(room, other) != fargate.Unknown &&
			slices.ContainsFunc(subnets(room, other), func(s string) bool { return slices.Contains(own, s) }) {
			n += count
		}
	}
	return n
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}
