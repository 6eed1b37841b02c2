package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// Manifests is the file with what a deployment would apply to a side that is absent or
// idle when the world begins: its namespaces and workloads, for kubectl apply.
func (s *Sandbox) Manifests(side string) string { return filepath.Join(s.dir, side+".json") }

// writeManifests leaves the manifests of what does not run.
func (s *Sandbox) writeManifests() error {
	for _, side := range s.scenario.Sides() {
		c := *s.scenario.Side(side)
		if !c.Absent && !c.Idle {
			continue
		}
		text, err := c.manifests()
		if err == nil {
			err = replace(s.Manifests(side), text)
		}
		if err != nil {
			return fmt.Errorf("write the manifests of %s: %w", c.Name, err)
		}
	}
	return nil
}

// manifests are the cluster's objects as they are when it serves, as one List. Nodes and
// what EKS brings along are not a deployment's.
func (c Cluster) manifests() ([]byte, error) {
	c.Idle, c.Nodes = false, nil
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	list.APIVersion, list.Kind = "v1", "List"
	for _, o := range c.objects() {
		item, err := manifest(o)
		if err != nil {
			return nil, err
		}
		if item != nil {
			list.Items = append(list.Items, item)
		}
	}
	return json.MarshalIndent(list, "", "  ")
}

// manifest is one object without the status that only a server writes, nil for CoreDNS,
// which the cluster comes with.
func manifest(o any) (json.RawMessage, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	var meta struct{ Namespace, Name string }
	if err := json.Unmarshal(fields["metadata"], &meta); err != nil {
		return nil, err
	}
	if meta.Namespace == "kube-system" && meta.Name == "coredns" {
		return nil, nil
	}
	delete(fields, "status")
	text, err = json.Marshal(fields)
	return bytes.ReplaceAll(text, []byte(`"creationTimestamp":null,`), nil), err
}
