package edge

// Sequence counts n choices among groups, without the network.
func Sequence(groups []Group, n int) map[string]int {
	p := newPicker()
	choices := make([]weighted, len(groups))
	for i, g := range groups {
		choices[i] = weighted{key: g.ARN, weight: g.Weight}
	}
	got := map[string]int{}
	for range n {
		got[groups[p.pick("x", choices)].Cluster]++
	}
	return got
}
