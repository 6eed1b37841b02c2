package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/state"
)

func TestUnlock(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	out, exit := runOnce(t, box, nil, "unlock", box.PlanFile())
	if exit != 0 {
		t.Errorf("exit %d", exit)
	}
	says(t, out, "no process on this machine", "shop-blue: free, never locked", "Nothing to unlock.")

	foreignLock(t, box, "green")
	out, exit = runOnce(t, box, nil, "unlock", box.PlanFile())
	if exit != 8 {
		t.Errorf("without a terminal: exit %d", exit)
	}
	says(t, out, "shop-green: locked", "by ops on bastion, pid 4711", "for apply of shop, run 20261130T010211-ab12cd", "if the clocks agree", "--yes was not given")
	for _, line := range strings.Split(out, "\n") {
		if len(line) > 80 && !strings.Contains(line, box.PlanFile()) && !strings.Contains(line, ".journal") {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
	out, exit = runOnce(t, box, nil, "unlock", box.PlanFile(), "--yes")
	if exit != 0 {
		t.Errorf("exit %d\n%s", exit, out)
	}
	if f := lockHolder(t, box, "green"); f.Held || f.Holder.Operation != "unlock" {
		t.Errorf("held %v by %s", f.Held, f.Holder)
	}
	applyExit(t, box, 0)
	wantFree(t, box)
}

// unlockDocumentOf reads the one document in the output of unlock -o json, behind what
// people are told on stderr.
func unlockDocumentOf(t *testing.T, out string) unlockDocument {
	t.Helper()
	at := strings.Index(out, "{")
	if at < 0 {
		t.Fatalf("no document:\n%s", out)
	}
	dec := json.NewDecoder(strings.NewReader(out[at:]))
	var doc unlockDocument
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Fatalf("more than one document: %v\n%s", err, out)
	}
	return doc
}

// unlockJSON runs unlock -o json, which says nothing but its document.
func unlockJSON(t *testing.T, box *sandbox.Sandbox, want int, args ...string) unlockDocument {
	t.Helper()
	out, exit := runOnce(t, box, nil, append([]string{"unlock", "-o", "json"}, args...)...)
	if !strings.HasPrefix(out, "{") {
		t.Errorf("it says more than the document:\n%s", out)
	}
	doc := unlockDocumentOf(t, out)
	if exit != want || doc.Exit != want || doc.Command != "unlock" || (doc.Why == "") != (want == 0) {
		t.Errorf("unlock %v: exit %d, want %d\n%s", args, exit, want, out)
	}
	return doc
}

func lockStates(doc unlockDocument) map[state.Side]string {
	out := map[state.Side]string{}
	for side, c := range doc.Clusters {
		out[side] = c.State
	}
	return out
}

func TestUnlockPrintsOneDocument(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	is := func(doc unlockDocument, blue, green string) {
		t.Helper()
		if diff := cmp.Diff(map[state.Side]string{state.Blue: blue, state.Green: green}, lockStates(doc)); diff != "" {
			t.Errorf("locks (-want +got):\n%s", diff)
		}
	}
	doc := unlockJSON(t, box, 0, box.PlanFile())
	is(doc, "free", "free")
	if doc.Journal == "" || doc.Holder != "" || doc.Clusters[state.Green].Holder != nil {
		t.Errorf("%+v", doc)
	}

	foreignLock(t, box, "green")
	doc = unlockJSON(t, box, 8, box.PlanFile())
	is(doc, "free", "locked")
	h := doc.Clusters[state.Green].Holder
	if h == nil || h.User != "ops" || h.Host != "bastion" || h.PID != 4711 || h.Operation != "apply" || h.Pair != "shop" ||
		h.Run != "20261130T010211-ab12cd" || h.Since.IsZero() || h.Renewed.IsZero() || h.Gone || !strings.Contains(doc.Cure, "--yes") {
		t.Errorf("holder %+v, cure %q", h, doc.Cure)
	}

	// One that cannot be read is unknown, and nothing is unlocked beside it.
	if err := box.Faults().Add(wire.Fault{Call: "k8s:get leases", Status: 403, Error: "Forbidden", Message: "not yours"}); err != nil {
		t.Fatal(err)
	}
	doc = unlockJSON(t, box, 3, box.PlanFile(), "--yes")
	if !strings.Contains(doc.Cure, "get, create and update leases") {
		t.Errorf("cure %q", doc.Cure)
	}
	box.Faults().Clear()
	unknown := 0
	for _, c := range doc.Clusters {
		if c.State == "unlocked" {
			t.Errorf("%+v", c)
		}
		if c.State == "unknown" && c.Why != "" && c.Holder == nil {
			unknown++
		}
	}
	if unknown != 1 || len(doc.Clusters) != 2 {
		t.Errorf("one of two is unknown: %+v", doc.Clusters)
	}

	// Both that cannot be read are told, and what helps once.
	if err := box.Faults().Add(wire.Fault{Call: "k8s:get leases", Times: -1, Status: 403, Error: "Forbidden", Message: "not yours"}); err != nil {
		t.Fatal(err)
	}
	doc = unlockJSON(t, box, 3, box.PlanFile(), "--yes")
	box.Faults().Clear()
	is(doc, "unknown", "unknown")
	if !strings.Contains(doc.Why, "shop-blue") || !strings.Contains(doc.Why, "shop-green") || strings.Count(doc.Cure, "get, create and update leases") != 1 {
		t.Errorf("%s\ncure %s", doc.Why, doc.Cure)
	}

	doc = unlockJSON(t, box, 0, box.PlanFile(), "--yes")
	is(doc, "free", "unlocked")
	if h := doc.Clusters[state.Green].Holder; h == nil || h.PID != 4711 {
		t.Errorf("taken from %+v", h)
	}
	is(unlockJSON(t, box, 0, box.PlanFile()), "free", "free")

	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("nonsense: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlockJSON(t, box, 1, broken)
	unlockJSON(t, box, 1)
	unlockJSON(t, box, 1, box.PlanFile(), "--no-such-flag")
	if out, exit := runOnce(t, box, nil, "unlock", box.PlanFile(), "-o", "yaml"); exit != 1 || !strings.Contains(out, "text or json") {
		t.Errorf("-o yaml: exit %d\n%s", exit, out)
	}
}

// Both clusters are asked at the same time: one that does not answer does not keep the
// other one waiting. Interrupted meanwhile, there still is a document.
func TestUnlockAsksBothClustersAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"eks:DescribeCluster", "k8s:get leases"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			box := startSandbox(t, "hot", testSpeed)
			both := make(chan struct{})
			var held atomic.Int32
			box.Faults().OnHold(func(wire.Call) {
				if held.Add(1) == 2 {
					close(both)
				}
			})
			if err := box.Faults().Add(wire.Fault{Call: call, Times: -1, Hold: "before"}); err != nil {
				t.Fatal(err)
			}
			p := begin(t, box, "unlock", box.PlanFile(), "-o", "json")
			p.reaches(t, both)
			if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			exit := p.exit()
			doc := unlockDocumentOf(t, p.out.String())
			if exit != 130 || doc.Exit != 130 || doc.Why == "" {
				t.Errorf("exit %d\n%s", exit, p.out.String())
			}
			if diff := cmp.Diff(map[state.Side]string{state.Blue: "unknown", state.Green: "unknown"}, lockStates(doc)); diff != "" {
				t.Errorf("locks (-want +got):\n%s", diff)
			}
		})
	}
}
