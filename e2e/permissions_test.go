package e2e_test

import (
	"os"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// documented makes callers members of the group that the guide binds its ClusterRole to,
// and nothing more.
func documented(sc *sandbox.Scenario) {
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		sc.Side(side).Groups = []string{"eksbg"}
	}
}

// asDocumented puts the ClusterRole of the guide into both clusters of a real world, and binds it
// as the guide says.
func asDocumented(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	text, err := os.ReadFile("../docs/clusterrole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	role, ok := obj.(*rbacv1.ClusterRole)
	if err != nil || !ok {
		t.Fatalf("%T, %v", obj, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "eksbg"}},
	}
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		rbac := direct(t, realCluster(t, box, side)).RbacV1()
		if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
