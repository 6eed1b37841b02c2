package standby

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/state"
)

// childEnv makes the test binary a child: its first argument says which.
const childEnv = "HOOK_TEST_CHILD"

func init() {
	if os.Getenv(childEnv) == "" {
		return
	}
	home := os.Getenv("HOME_DIR")
	switch os.Args[1] {
	case "heed":
		childHeed(home, os.Args[2])
	case "leave":
		childLeave()
	case "hold":
		event(home, "holding")
		awaitIn(home)
		event(home, "let go")
	case "work":
		childWork(home)
	case "eksbg":
		childEksbg(home, os.Args[2:])
	}
	os.Exit(0)
}

// child is the argv of a child.
func child(args ...string) []string { return append([]string{os.Args[0]}, args...) }

// childHeed tells of each signal, ends with 7 at the one it is to end at, and with 0 at
// that one with a + behind it.
func childHeed(home, at string) {
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("at work")
	event(home, "ready")
	for s := range ch {
		name := signalName(s.(syscall.Signal))
		fmt.Println("got", name)
		event(home, name)
		switch at {
		case name:
			os.Exit(7)
		case name + "+":
			os.Exit(0)
		}
	}
}

// childLeave leaves a process behind that is out of its group and has its output.
func childLeave() {
	cmd := exec.Command(os.Args[0], "hold")
	cmd.Stdout, cmd.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Println("left a process")
}

// childWork is a hook that works until it is let, and finishes even with nobody to
// listen; a second attempt has less to do.
func childWork(home string) {
	if os.Getenv("EKSBG_ATTEMPT") != "1" {
		fmt.Println("again")
		return
	}
	event(home, "at work")
	awaitIn(home)
	for range 200 {
		if _, err := fmt.Println(strings.Repeat("x", 1000)); err != nil {
			event(home, err.Error())
		}
	}
	if err := os.WriteFile(filepath.Join(home, "finished"), nil, 0o600); err != nil {
		panic(err)
	}
	event(home, "finished")
}

func awaitIn(home string) {
	f, err := os.Open(filepath.Join(home, "go"))
	if err != nil {
		panic(err)
	}
	if _, err := f.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
}

// childEksbg is a whole eksbg that runs the hook with a journal on disk.
func childEksbg(home string, command []string) {
	clk := clock.RealClock{}
	j, err := state.Create(context.Background(), journalIn(home), &state.Plan{Run: "run-1", Name: "shop", Steps: []state.StepSpec{hookSpec}},
		state.Who{Host: "bastion"}, clk)
	if err != nil {
		panic(err)
	}
	deps := hookDepsIn(home, j, clk)
	deps.Hook.Command = command
	err = NewHook(hookSpec, deps).Act(context.Background(), &noting{j.Recorder(hookSpec.ID), home})
	panic(fmt.Sprint("the hook has ended: ", err)) // the test kills this process before
}

func journalIn(home string) string { return filepath.Join(home, "shop.journal") }

// noting tells of each note once it is on the disk.
type noting struct {
	state.Recorder
	home string
}

func (n *noting) Record(r state.Record) error {
	err := n.Recorder.Record(r)
	event(n.home, "noted")
	return err
}
