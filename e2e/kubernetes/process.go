package kubernetes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lockRetry is how often a lock or a port is looked at while it is waited for.
const lockRetry = 50 * time.Millisecond

// process is one child that never outlives this one.
type process struct {
	name string
	bin  string
	args []string
	// log is the file that its output goes to, appended across restarts.
	log string

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan struct{}
	err error
}

func newProcess(bin, dir, name string, args ...string) *process {
	return &process{name: name, bin: bin, args: append([]string{name}, args...), log: filepath.Join(dir, name+".log")}
}

// start runs it. It must not be running.
func (p *process) start() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd := exec.Command(p.bin, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	// A parent that is killed takes it along; its own group keeps a terminal's Ctrl-C away.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, end := make(chan error), make(chan struct{})
	go func() {
		// Pdeathsig is about the thread that started it, so that thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close() //nolint:errcheck // the child has written it
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(end)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.mu.Lock()
	p.cmd, p.end, p.err = cmd, end, nil
	p.mu.Unlock()
	return nil
}

// ended is closed when the process that was started last is gone.
func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// signal sends one to a process that runs; one that has ended is no error.
func (p *process) signal(s os.Signal) error {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// kill ends it at once and waits for that.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if end := p.ended(); end != nil {
		<-end
	}
	return nil
}

// failure says why a process that should run does not, with its last lines.
func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s ended: %w\n%s", p.name, p.err, tail(p.log, 15))
}

// tail is the last lines of a file.
func tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// freePort finds a port of loopback that nobody has. It is below the range that systems
// hand out by themselves, so that nobody gets it by chance before the child takes it.
func freePort() (int, error) {
	for range 200 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("find a free port between 20000 and 32000: all that were tried are in use")
}
