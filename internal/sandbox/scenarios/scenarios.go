// Package scenarios holds the worlds that are built into eksbg, as YAML.
package scenarios

import (
	"embed"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Names lists the built-in scenarios in name order.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil // an embedded folder can always be read
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Read returns the text of a built-in scenario.
func Read(name string) (text []byte, ok bool) {
	if strings.ContainsAny(name, `./\`) {
		return nil, false
	}
	text, err := files.ReadFile(name + ".yaml")
	return text, err == nil
}
