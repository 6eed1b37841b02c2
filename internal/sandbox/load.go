package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/eksbg/eksbg/internal/sandbox/scenarios"
)

// defaults are the durations of a scenario that names none, as seen in public logs
// of real clusters: 1.30 to 1.31 in about ten minutes (eksctl#7976), Fargate pods in
// a minute, Route 53 in sync in less than one.
var defaults = Durations{
	ControlPlane:    9 * time.Minute,
	Addon:           100 * time.Second,
	InsightsRefresh: 40 * time.Second,
	ActiveLag:       5 * time.Second,
	FargateStartup:  55 * time.Second,
	Jitter:          15 * time.Second,
	PodStop:         10 * time.Second,
	Insync:          30 * time.Second,
	TargetHealthy:   20 * time.Second,
	ClusterCreate:   9 * time.Minute,
	ClusterDelete:   3 * time.Minute,
	FargateProfile:  90 * time.Second,
	Nodegroup:       6 * time.Minute,
	NodegroupConfig: 20 * time.Second,
	NodeStartup:     70 * time.Second,
	Drain:           15 * time.Minute, // https://docs.aws.amazon.com/eks/latest/userguide/managed-node-update-behavior.html
	AutoNodes:       30 * time.Minute,
}

// Names lists the scenarios that are built in.
func Names() []string { return scenarios.Names() }

// Load reads a scenario by the name of a built-in one, or from a YAML file. What is
// built in wins, so a file of that name is written with a path: ./hot. Errors name
// the file, the line and the column, and show the source.
func Load(nameOrFile string) (*Scenario, error) {
	if text, ok := scenarios.Read(nameOrFile); ok {
		return Parse(nameOrFile, text)
	}
	text, err := os.ReadFile(nameOrFile)
	if errors.Is(err, fs.ErrNotExist) && filepath.Ext(nameOrFile) == "" {
		return nil, fmt.Errorf("no scenario is called %q; there are %s, or name a YAML file", nameOrFile, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	return Parse(nameOrFile, text)
}

// Parse reads a scenario from its YAML text, strictly: an unknown field, a
// duplicate key or a wrong type is an error. where is named in errors.
func Parse(where string, text []byte) (*Scenario, error) {
	var s Scenario
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict(), yaml.CustomUnmarshaler(readDuration))
	if err := d.Decode(&s); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("scenario %s is empty", where)
		}
		return nil, fmt.Errorf("scenario %s: %s", where, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	var more any
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("scenario %s holds more than one document; keep one", where)
	}
	s.fill()
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", where, err)
	}
	return &s, nil
}

// readDuration wants a unit: without one, YAML's own reading would be nanoseconds.
func readDuration(d *time.Duration, text []byte) error {
	word := strings.Trim(strings.TrimSpace(string(text)), `"'`)
	v, err := time.ParseDuration(word)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is no duration; write it as 30s, 5m or 1h30m", word)
	}
	*d = v
	return nil
}

// fill puts in what the file leaves out.
func (s *Scenario) fill() {
	def(&s.Account, "111122223333")
	def(&s.KubeletRule, KubeletSkew)
	def(&s.Seed, 1)
	d := &s.Durations
	def(&d.ControlPlane, defaults.ControlPlane)
	def(&d.Addon, defaults.Addon)
	def(&d.InsightsRefresh, defaults.InsightsRefresh)
	def(&d.ActiveLag, defaults.ActiveLag)
	def(&d.FargateStartup, defaults.FargateStartup)
	def(&d.Jitter, defaults.Jitter)
	def(&d.PodStop, defaults.PodStop)
	def(&d.Insync, defaults.Insync)
	def(&d.TargetHealthy, defaults.TargetHealthy)
	def(&d.ClusterCreate, defaults.ClusterCreate)
	def(&d.ClusterDelete, defaults.ClusterDelete)
	def(&d.FargateProfile, defaults.FargateProfile)
	def(&d.Nodegroup, defaults.Nodegroup)
	def(&d.NodegroupConfig, defaults.NodegroupConfig)
	def(&d.NodeStartup, defaults.NodeStartup)
	def(&d.Drain, defaults.Drain)
	def(&d.AutoNodes, defaults.AutoNodes)
	def(&s.Plan.Variant, "hot")
	for _, side := range s.Sides() {
		c := s.Side(side)
		for i := range c.Workloads {
			w := &c.Workloads[i]
			def(&w.Image, "public.ecr.aws/docker/library/busybox:1.36")
			def(&w.Strategy, "RollingUpdate")
		}
	}
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// scale divides every duration of the world by the speed. Those of the plan file
// have floors, below which a client would be busy with nothing but polling.
func (s *Scenario) scale(speed float64) {
	d := &s.Durations
	for _, v := range []*time.Duration{
		&d.ControlPlane, &d.Addon, &d.InsightsRefresh, &d.ActiveLag, &d.FargateStartup, &d.Jitter, &d.PodStop, &d.Insync, &d.TargetHealthy,
		&d.ClusterCreate, &d.ClusterDelete, &d.FargateProfile, &d.Nodegroup, &d.NodegroupConfig, &d.NodeStartup, &d.Drain, &d.AutoNodes,
		&s.CredentialsLast,
	} {
		*v = divided(*v, speed, 0)
	}
	for _, side := range s.Sides() {
		for i := range s.Side(side).Workloads {
			w := &s.Side(side).Workloads[i]
			w.Runs = divided(w.Runs, speed, 0)
		}
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		f.From, f.For, f.Delay = divided(f.From, speed, 0), divided(f.For, speed, 0), divided(f.Delay, speed, 0)
	}
	p := &s.Plan
	p.Hold = divided(p.Hold, speed, 200*time.Millisecond)
	p.Polling = divided(p.Polling, speed, 50*time.Millisecond)
	// These bound how long something may take: on a busy machine that is not the
	// world's time alone.
	p.Patience = divided(p.Patience, speed, 5*time.Second)
	p.Timeout = divided(p.Timeout, speed, time.Minute)
	p.JobTimeout = divided(p.JobTimeout, speed, time.Minute)
	p.Pending = divided(p.Pending, speed, 3*time.Second)
	p.FinishedAge = divided(p.FinishedAge, speed, 0)
	for i := range p.Gates {
		if h := p.Gates[i].HTTP; h != nil {
			scaled := *h
			scaled.Over = divided(h.Over, speed, 200*time.Millisecond)
			p.Gates[i].HTTP = &scaled
		}
	}
}

// divided leaves 0 alone and rounds what can be read by people to milliseconds.
func divided(d time.Duration, speed float64, floor time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	v := time.Duration(float64(d) / speed)
	if v > 10*time.Millisecond {
		v = v.Round(time.Millisecond)
	}
	return max(v, min(floor, d))
}

// clone is a deep copy, so that one loaded scenario can be started more than once.
func (s *Scenario) clone() (*Scenario, error) {
	text, err := yaml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("copy scenario %s: %w", s.Name, err)
	}
	var c Scenario
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("copy scenario %s: %w", s.Name, err)
	}
	return &c, nil
}
