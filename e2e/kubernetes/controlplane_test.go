package kubernetes_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/e2e/kubernetes"
)

// start brings up a control plane alone, and leaves its logs when the test fails.
func start(t *testing.T) *kubernetes.ControlPlane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	bin, err := kubernetes.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := kubernetes.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.Start(ctx, kubernetes.Options{Name: "test", Dir: t.TempDir(), Binary: bin, Authority: ca})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestAnAPIServerThatIsKilledComesBackWithWhatItHad(t *testing.T) {
	c := start(t)
	k, err := clientset.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	before, err := k.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.Running(); err == nil || !strings.Contains(err.Error(), "kube-apiserver ended") {
		t.Errorf("with its API server killed Running says %v", err)
	}
	if _, err := k.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}); err == nil {
		t.Error("the API server was killed and still answers")
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := k.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil || after.UID != before.UID {
		t.Errorf("after the restart kube-system is %v, %v; it was %v", after.UID, err, before.UID)
	}
	if err := c.Running(); err != nil {
		t.Error(err)
	}
}

// The version in the binary's name and in /version is the one that it is built from.
func TestVersionIsThatOfTheModule(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "controlplane", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "k8s.io/kubernetes " + kubernetes.Version + "\n"; !strings.Contains(string(mod), want) {
		t.Errorf("controlplane/go.mod does not require %q", want)
	}
}
