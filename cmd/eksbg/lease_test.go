package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/state"
)

// locks are the Leases of one side's cluster.
func locks(t *testing.T, box *sandbox.Sandbox, side string) lease.API {
	t.Helper()
	return kubeOf(t, box, side).CoordinationV1().Leases(lease.Namespace)
}

// lockHolder is who has a side's lock, or had it last.
func lockHolder(t *testing.T, box *sandbox.Sandbox, side string) *lease.Found {
	t.Helper()
	f, err := lease.Inspect(t.Context(), lease.Cluster{Name: side, Leases: locks(t, box, side)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wantFree(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	for _, side := range []string{"blue", "green"} {
		if f := lockHolder(t, box, side); f.Held || f.Holder.Operation != "apply" {
			t.Errorf("%s: held %v, by %s", side, f.Held, f.Holder)
		}
	}
}

// foreignLock makes somebody else on another machine hold a side's lock.
func foreignLock(t *testing.T, box *sandbox.Sandbox, side string) {
	t.Helper()
	now, api := metav1.NowMicro(), locks(t, box, side)
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease.Name, Namespace: lease.Namespace, Annotations: map[string]string{
			"eksbg.dev/user": "ops", "eksbg.dev/host": "bastion", "eksbg.dev/pid": "4711", "eksbg.dev/operation": "apply",
			"eksbg.dev/pair": "shop", "eksbg.dev/run": "20261130T010211-ab12cd"}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("bastion_4711_x"), AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: ptr.To(int32(60))},
	}
	_, err := api.Create(t.Context(), want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		was, getErr := api.Get(t.Context(), lease.Name, metav1.GetOptions{})
		if getErr != nil {
			t.Fatal(getErr)
		}
		want.ResourceVersion = was.ResourceVersion
		_, err = api.Update(t.Context(), want, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// elsewhere is the journal of another machine.
func elsewhere(t *testing.T) string { return filepath.Join(t.TempDir(), "shop.journal") }

// intents counts the changes in a journal, closed runs included.
func intents(t *testing.T, path string) int {
	t.Helper()
	records, _, _, err := readRun(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	n := 0
	for _, r := range records {
		if r.Kind == state.RecordIntent {
			n++
		}
	}
	return n
}

// changes are the changing calls but those of the lock itself.
func changes(entries []wire.Entry) []moment {
	var out []moment
	for _, m := range changing(entries) {
		if !strings.HasSuffix(m.call, " leases") {
			out = append(out, m)
		}
	}
	return out
}

// Two people on two machines start at the same moment: one of them changes the pair, the
// other one nothing, although the roles have flipped by the time it gets the lock.
func TestTwoMachinesOneChangesAnything(t *testing.T) {
	t.Parallel()
	undisturbed := startSandbox(t, "hot", testSpeed)
	mustApply(t, undisturbed)
	box := startSandbox(t, "hot", testSpeed)
	paths := []string{elsewhere(t), elsewhere(t)}
	var both []*process
	for _, p := range paths {
		both = append(both, begin(t, box, "apply", box.PlanFile(), "--yes", "--state", p))
	}
	exits := map[int]int{}
	for _, p := range both {
		exits[p.exit()]++
	}
	// The other one ends with nothing to do, or reads that the lock is held.
	if exits[0] == 0 || exits[0]+exits[6] != 2 {
		t.Errorf("exits %v\n%s\n----\n%s", exits, both[0].out.String(), both[1].out.String())
	}
	a, b := intents(t, paths[0]), intents(t, paths[1])
	if (a == 0) == (b == 0) {
		t.Errorf("%d and %d changes in the two journals", a, b)
	}
	if diff := cmp.Diff(world(t, undisturbed), world(t, box)); diff != "" {
		t.Errorf("the world differs from that of one run (-one +two):\n%s", diff)
	}
	entries := requests(t, box)
	onceEach(t, entries)
	if one, two := len(changes(requests(t, undisturbed))), len(changes(entries)); one != two {
		t.Errorf("%d changing calls, one run makes %d", two, one)
	}
	wantFree(t, box)
}

// The second one's plan is from before the cutover and asks for more: under the lock it
// is seen to be of roles that have flipped, and refused.
func TestAPlanFromBeforeTheRolesFlippedIsRefused(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	further := filepath.Join(filepath.Dir(box.PlanFile()), "further.yaml")
	text := strings.Replace(read(t, box.PlanFile()), `version: "1.33"`, `version: "1.34"`, 1)
	if err := os.WriteFile(further, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	attached, looked := make(chan struct{}), make(chan struct{})
	var first, second sync.Once
	asked := 0
	box.Log().Watch(func(e wire.Entry) { // under the log's lock
		switch e.Call {
		case "elbv2:ModifyListener": // at weight 0; the traffic moves next
			first.Do(func() { close(attached) })
		case "k8s:get leases":
			select {
			case <-attached:
				if asked++; asked == 3 { // both before the plan, and one to take it
					second.Do(func() { close(looked) })
				}
			default:
			}
		}
	})
	one := apply(t, box)
	one.reaches(t, attached)
	if err := one.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	path := elsewhere(t)
	two := begin(t, box, "apply", further, "--yes", "--state", path)
	two.reaches(t, looked)
	if err := one.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if one.exit() != 0 {
		t.Fatalf("the first one:\n%s", one.out.String())
	}
	switch exit := two.exit(); exit {
	case 7:
		says(t, two.out.String(), "waiting for the lock in cluster shop-blue, held by", "looking at the pair again",
			"the active side was blue, is green", "nothing has been changed by this process")
	case 6: // the first one took so long that it renewed its lock meanwhile
		says(t, two.out.String(), "the lock in cluster shop-blue is held by")
	default:
		t.Errorf("exit %d\n%s", exit, two.out.String())
	}
	if n := intents(t, path); n != 0 {
		t.Errorf("the second one made %d changes", n)
	}
	wantFree(t, box)
}

func TestAKilledProcessIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	held := holdAt(t, box, wire.Fault{Call: "eks:UpdateClusterVersion", Hold: "after"})
	p := apply(t, box)
	p.reaches(t, held)
	kill(t, p)
	if f := lockHolder(t, box, "green"); !f.Held || f.Holder.Who.PID != p.cmd.Process.Pid {
		t.Errorf("after the kill the lock is held by %s", f.Holder)
	}
	out, exit := runOnce(t, box, nil, "unlock", box.PlanFile())
	if exit != 8 {
		t.Errorf("unlock: exit %d", exit)
	}
	says(t, out, "shop-green: locked", "That process ran on this machine and is gone", "eksbg unlock")
	out = applyExit(t, box, 0)
	says(t, out, "took over the lock in cluster shop-blue", "took over the lock in cluster shop-green", "whose process is gone")
	if strings.Contains(out, "waiting for the lock") {
		t.Errorf("it was waited for:\n%s", out)
	}
	wantFree(t, box)
}

func TestGoneProcess(t *testing.T) {
	t.Parallel()
	sleeper := exec.Command("sleep", "100")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	h := lease.Holder{Machine: machine(), Who: state.Who{PID: sleeper.Process.Pid}}
	if machine() == "" {
		t.Skip("this system cannot be told from others")
	}
	if goneProcess(h) {
		t.Error("a process that runs is gone")
	}
	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !goneProcess(h) { // a zombie until it is waited for
		if t.Context().Err() != nil {
			t.Fatal("a killed process is not gone")
		}
	}
	_ = sleeper.Wait()
	if !goneProcess(h) {
		t.Error("an ended process is not gone")
	}
	elsewhere := h
	elsewhere.Machine = "another boot pid:[1]"
	unknown := h
	unknown.Machine = ""
	for _, other := range []lease.Holder{elsewhere, unknown, {Machine: machine()}} {
		if goneProcess(other) {
			t.Errorf("%+v cannot be known to be gone", other)
		}
	}
	if !goneProcess(lease.Holder{Machine: machine(), Who: state.Who{PID: os.Getpid()}}) {
		t.Error("whoever had our pid before is gone")
	}
}

// Without USER and LOGNAME the holder still has a name.
func TestTheHolderHasANameWithoutTheVariables(t *testing.T) {
	t.Setenv("USER", "")
	t.Setenv("LOGNAME", "")
	if who := me(""); who.User == "" || strings.HasPrefix(who.String(), "on ") {
		t.Errorf("%+v: %s", who, who)
	}
}
