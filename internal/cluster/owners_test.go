package cluster

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestTopOwner builds chains of any length, with loops and holes, and holds the
// resolution against a walk of its own.
func TestTopOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, maxChain).Draw(t, "objects")
		above := map[int]int{}
		who := newOwners()
		for i := range n {
			// Mostly the next one, so that chains get long.
			up := rapid.OneOf(rapid.Just(i+1), rapid.Just(i+1), rapid.IntRange(-1, n)).Draw(t, fmt.Sprintf("owner of %d", i))
			known := rapid.IntRange(0, 4).Draw(t, fmt.Sprintf("%d is listed", i)) > 0
			if up < 0 || !known {
				continue
			}
			above[i] = up
			yes := true
			who.add(&metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u", i)), OwnerReferences: []metav1.OwnerReference{
				{Kind: "Other", Name: "not the controller", UID: "x"},
				{Kind: "K", Name: fmt.Sprint("o", up), UID: types.UID(fmt.Sprint("u", up)), Controller: &yes},
			}})
		}
		got := who.top(Owner{Namespace: "shop", Kind: "K", Name: "o0", UID: "u0"})
		at, seen := 0, map[int]bool{}
		for !seen[at] {
			seen[at] = true
			up, ok := above[at]
			if !ok {
				if got.Name != fmt.Sprint("o", at) || got.Namespace != "shop" {
					t.Fatalf("top is %s, want o%d", got, at)
				}
				return
			}
			at = up
		}
		// A circle has no top; what counts is that the walk ends.
	})
}
