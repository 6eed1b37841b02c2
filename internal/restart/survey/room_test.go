package survey

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/fargate"
)

// hall is Hall's condition: no set of profiles wants more addresses than its subnets have.
func hall(room fargate.Room, pods map[string]int) bool {
	var profiles []string
	for p := range room.Subnets {
		profiles = append(profiles, p)
	}
	for set := range 1 << len(profiles) {
		want, have, seen := 0, 0, map[string]bool{}
		for i, p := range profiles {
			if set>>i&1 == 0 {
				continue
			}
			want += pods[p]
			for _, s := range room.Subnets[p] {
				if !seen[s] {
					seen[s], have = true, have+room.Free[s]
				}
			}
		}
		if want > have {
			return false
		}
	}
	return true
}

func TestPlacesIsHallsCondition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room, pods := fargate.Room{Addresses: map[string]int{}, Subnets: map[string][]string{}, Free: map[string]int{}}, map[string]int{}
		all := []string{"s1", "s2", "s3", "s4"}
		for _, s := range all {
			room.Free[s] = rapid.IntRange(0, 4).Draw(t, s)
		}
		for _, p := range []string{"a", "b", "c", "d"} {
			room.Subnets[p] = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 4, rapid.ID[string]).Draw(t, p)
			pods[p] = rapid.IntRange(0, 5).Draw(t, "pods")
			for _, s := range room.Subnets[p] {
				room.Addresses[p] += room.Free[s]
			}
		}
		if got, want := places(room, pods), hall(room, pods); got != want {
			t.Fatalf("places(%v, %v) = %v, want %v", room, pods, got, want)
		}
	})
}

func TestPlacesWhereSubnetsAreNotSaid(t *testing.T) {
	room := fargate.Room{Addresses: map[string]int{"a": 2, "b": fargate.Unknown}}
	for n, want := range map[int]bool{0: true, 2: true, 3: false} {
		if got := places(room, map[string]int{"a": n, "b": 99, "c": 99}); got != want {
			t.Errorf("%d pods in 2 addresses: %v", n, got)
		}
	}
}
