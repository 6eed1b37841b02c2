package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestTopOwner builds chains of any length, with loops and holes, and holds the
// resolution against a walk of its own.
func TestTopOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "objects")
		above := map[int]int{}
		who := newOwners()
		for i := range n {
			// Mostly the next one, so that chains get long.
			up := rapid.OneOf(rapid.Just(i+1), rapid.Just(i+1), rapid.Just(i+1), rapid.IntRange(-1, n)).Draw(t, fmt.Sprintf("owner of %d", i))
			known := rapid.IntRange(0, 19).Draw(t, fmt.Sprintf("%d is listed", i)) > 0
			if up < 0 || !known {
				continue
			}
			above[i] = up
			yes := true
			who.add(&metav1.ObjectMeta{Namespace: "shop", UID: types.UID(fmt.Sprint("u", i)), OwnerReferences: []metav1.OwnerReference{
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
		if got.Name != "o0" {
			t.Fatalf("the chain ends in a circle, and its top is %s", got)
		}
	})
}

// A list that is begun anew may show an object without the owner that it had.
func TestAnOwnerThatIsGoneInTheNextListIsForgotten(t *testing.T) {
	who := newOwners()
	set := metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "rs", OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "d"}}}
	if !who.add(&set) {
		t.Fatal("it has an owner")
	}
	set.OwnerReferences = nil
	if who.add(&set) {
		t.Fatal("it has none")
	}
	direct := Owner{Namespace: "shop", Kind: "ReplicaSet", Name: "web-1", UID: "rs"}
	if got := who.top(direct); got != direct {
		t.Errorf("top is %s", got)
	}
}

// Custom kinds may be called Node; only those of the core are what a static pod runs on.
func TestACustomNodeIsNoNode(t *testing.T) {
	of := func(apiVersion string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "chain", Name: "p", UID: "p",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Node", Name: "n", UID: "u"}}}, Spec: corev1.PodSpec{NodeName: "host"}}
	}
	for apiVersion, want := range map[string]Owner{
		"v1":                   {APIVersion: "v1", Kind: "Node", Name: "host"},
		"ethereum.example/v1a": {APIVersion: "ethereum.example/v1a", Namespace: "chain", Kind: "Node", Name: "n", UID: "u"},
	} {
		got := pod(of(apiVersion))
		if diff := cmp.Diff(want, got.Owner); diff != "" || got.Static != (apiVersion == "v1") {
			t.Errorf("%s: static %v (-want +got):\n%s", apiVersion, got.Static, diff)
		}
	}
}
