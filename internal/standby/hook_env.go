package standby

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// HookFacts is what a hook is told of the pair and the run, each as a variable that is
// named EKSBG_ and what is written beside it. What does not apply is empty.
type HookFacts struct {
	Pair string // PAIR, the plan file's name
	Run  string // RUN
	// Side and Cluster are what the hook is about.
	Side    state.Side // SIDE: blue or green
	Cluster string     // CLUSTER, the name of the EKS cluster
	Region  string     // REGION
	// FromVersion is the minor that the pair is served by, TargetVersion the one it is
	// taken to: "1.31".
	FromVersion   string // FROM_VERSION
	TargetVersion string // TARGET_VERSION
	// Active and Standby are as observed now, Origin and Destination as the run has fixed
	// them.
	Active      state.Side // ACTIVE
	Standby     state.Side // STANDBY
	Origin      state.Side // ORIGIN
	Destination state.Side // DESTINATION
	PlanFile    string     // PLAN_FILE, its absolute path
}

// environment is what the command is given: what eksbg was started with, what the plan
// file adds, and the facts. No credentials are added.
func (h *Hook) environment(attempt int) ([]string, error) {
	vars := map[string]string{}
	for _, v := range h.Environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			vars[name] = value
		}
	}
	maps.Copy(vars, h.Hook.Env)
	var wrong error
	absolute := func(path string) string {
		if path == "" {
			return ""
		}
		abs, err := filepath.Abs(path)
		wrong = errors.Join(wrong, err)
		return abs
	}
	f := h.Facts
	for name, value := range map[string]string{
		"HOOK": h.Name, "STEP": h.spec.ID, "ATTEMPT": strconv.Itoa(attempt),
		"PAIR": f.Pair, "RUN": f.Run, "SIDE": string(f.Side), "CLUSTER": f.Cluster, "REGION": f.Region,
		"FROM_VERSION": f.FromVersion, "TARGET_VERSION": f.TargetVersion,
		"ACTIVE": string(f.Active), "STANDBY": string(f.Standby), "ORIGIN": string(f.Origin), "DESTINATION": string(f.Destination),
		"PLAN_FILE": absolute(f.PlanFile), "FILES": absolute(h.Files), "LOG": absolute(h.Log),
	} {
		vars[planfile.HookEnv+name] = value
	}
	dir, err := h.dir()
	vars["PWD"] = dir
	out := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		out = append(out, name+"="+vars[name])
	}
	return out, errors.Join(wrong, err)
}

// dir is the folder that the commands run in.
func (h *Hook) dir() (string, error) {
	dir := h.Hook.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(h.Base, dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(abs)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "chdir", Path: abs, Err: errors.New("is no folder")}
	}
	return abs, err
}

// program finds the program of an argv as a shell does it, in the PATH that the command
// is given. A name with a slash in it is seen from dir. Folders of PATH that are not
// absolute are passed over: they would mean another program in every folder.
func program(name, dir string, environ []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, executable(path)
	}
	for _, v := range environ {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, folder := range filepath.SplitList(list) {
			if path := filepath.Join(folder, name); filepath.IsAbs(folder) && executable(path) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is in no folder of PATH", name)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s may not be executed; set its mode: chmod +x", path)
	}
	return nil
}
