package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// World is the canonical state of everything, made for JSON: no ids, no times, so
// that two worlds with the same history are equal. Keys are eks, route53, elbv2 and
// kubernetes (by side).
func (s *Sandbox) World() any {
	kubernetes := map[string]any{}
	for side, c := range s.running() {
		kubernetes[side] = c.kube.Snapshot()
	}
	return map[string]any{
		"eks": s.eks.Snapshot(), "route53": s.route53.Snapshot(), "elbv2": s.elbv2.Snapshot(), "kubernetes": kubernetes,
	}
}

// startWorld keeps world.json as the world is, from now until Close.
func (s *Sandbox) startWorld() error {
	w := &worldFile{path: s.WorldPath(), state: s.World, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	if err := w.write(); err != nil {
		return err
	}
	w.done.Go(w.run)
	s.mu.Lock()
	s.world = w
	s.mu.Unlock()
	s.onClose(w.close)
	return nil
}

// changed has world.json looked at soon.
func (s *Sandbox) changed() {
	s.mu.Lock()
	w := s.world
	s.mu.Unlock()
	if w == nil {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// The world is written at most once in worldPause, and looked at at least once in
// worldPeriod for what changes by itself, a change that gets in sync for example.
const (
	worldPause  = 50 * time.Millisecond
	worldPeriod = 500 * time.Millisecond
)

// worldFile rewrites a file whenever the state that it shows is another one.
type worldFile struct {
	path  string
	state func() any
	last  []byte
	wake  chan struct{}
	stop  chan struct{}
	done  sync.WaitGroup
	err   error
}

func (w *worldFile) run() {
	period := time.NewTicker(worldPeriod)
	defer period.Stop()
	for w.err == nil {
		select {
		case <-w.stop:
			return
		case <-period.C:
		case <-w.wake:
			pause := time.NewTimer(worldPause)
			select {
			case <-w.stop:
				pause.Stop()
				return
			case <-pause.C:
			}
		}
		w.err = w.write()
	}
}

func (w *worldFile) close() error {
	close(w.stop)
	w.done.Wait()
	if w.err != nil {
		return w.err
	}
	return w.write()
}

// write replaces the file in one step, so that a reader never sees half of it.
func (w *worldFile) write() error {
	text, err := json.MarshalIndent(w.state(), "", "  ")
	if err != nil {
		return fmt.Errorf("write the world: %w", err)
	}
	if bytes.Equal(text, w.last) {
		return nil
	}
	if err := replace(w.path, append(text, '\n')); err != nil {
		return fmt.Errorf("write the world: %w", err)
	}
	w.last = text
	return nil
}

// replace writes a file that only its owner can read, in one step.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // half a file is of no use
	}
	return err
}
