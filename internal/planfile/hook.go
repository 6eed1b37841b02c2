package planfile

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// HookEnv is what the names of the variables begin with that eksbg gives to hooks.
const HookEnv = "EKSBG_"

// Hook is a command of the user's that eksbg runs at one point of the way: provision,
// deploy, teardown.
type Hook struct {
	// The program and its arguments, an item each; no shell reads them.
	Command []string `yaml:"command" json:"command" jsonschema:"minItems=1"`
	// A command that tells whether the work is done already: it ends with 0 when it is, with 2
	// when it is not and Command may be run; everything else is no answer.
	Check []string `yaml:"check,omitempty" json:"check,omitempty" jsonschema:"minItems=1"`
	// Bounds Command; past it it is told to end.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty" jsonschema:"default=1h"`
	// How long it may take to end once it is told to; past it it is killed.
	Grace Duration `yaml:"grace,omitempty" json:"grace,omitempty" jsonschema:"default=1m"`
	// Whether Command may be run again when nobody can tell how far it got: true runs it again,
	// false asks a person.
	Idempotent bool `yaml:"idempotent,omitempty" json:"idempotent,omitempty" jsonschema:"default=false"`
	// Variables for both commands, beside those of eksbg's own environment and the EKSBG_ ones.
	Env map[string]string `yaml:"env,omitempty" json:"env,omitempty"`
	// The folder they run in, seen from the plan file's; left out: the plan file's.
	Dir string `yaml:"dir,omitempty" json:"dir,omitempty"`
}

func (h *Hook) setDefaults() {
	h.Timeout = Duration(time.Hour)
	h.Grace = Duration(time.Minute)
}

// POSIX, Environment Variables, in the case that people use.
var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// hook holds a hook at a path against what can be told without running it.
func (v *validator) hook(path string, h *Hook) {
	v.argv(path+".command", h.Command, true)
	v.argv(path+".check", h.Check, false)
	v.positive(path+".timeout", h.Timeout)
	v.positive(path+".grace", h.Grace)
	for _, name := range slices.Sorted(maps.Keys(h.Env)) {
		at := path + ".env." + name
		switch {
		case !variableForm.MatchString(name):
			v.bad(at, "%.120q is no name of a variable; use letters, digits and _", name)
		case strings.HasPrefix(name, HookEnv):
			v.bad(at, "the names that begin with %s are eksbg's own; choose another", HookEnv)
		}
	}
}

// argv wants one item an argument: a whole command line in one item would be looked for
// as a program of that name.
func (v *validator) argv(path string, argv []string, required bool) {
	switch {
	case len(argv) == 0 && (required || v.given(path)):
		v.bad(path, "the list is empty; write the program and its arguments, as in [terraform, apply, -auto-approve]")
	case len(argv) == 1 && strings.Contains(argv[0], " ") && !strings.HasPrefix(argv[0], "/"):
		v.bad(path+"[0]", "%.120q is one item with spaces in it, and no shell takes it apart; write [%s], or [sh, -c, '…'] where you want a shell",
			argv[0], strings.Join(strings.Fields(argv[0]), ", "))
	case len(argv) > 0 && strings.HasPrefix(argv[0], "~"):
		v.bad(path+"[0]", "%.120q: only a shell knows ~; write the whole path", argv[0])
	}
}

// truth reads true or false.
func (d *decoder) truth(n ast.Node, v reflect.Value, path string) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		d.wrong(n, path, "true or false")
		return
	}
	v.SetBool(b.Value)
}

// texts fills a map of texts, whose keys people choose. An empty value is a value here.
func (d *decoder) texts(n ast.Node, v reflect.Value, path string) {
	values, ok := mappingOf(n)
	if !ok {
		d.wrong(n, path, "fields below it")
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, e := range d.entries(values, path) {
		p := fmt.Sprintf("%s.%s", path, e.name)
		d.keys[p] = e.at
		value := reflect.New(v.Type().Elem()).Elem()
		if s, ok := textOf(e.value); !ok || s != "" {
			d.decode(e.value, value, p)
		}
		out.SetMapIndex(reflect.ValueOf(e.name), value)
	}
	v.Set(out)
}
