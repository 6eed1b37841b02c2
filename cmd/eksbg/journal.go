package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"sort"
	"strings"

	"github.com/eksbg/eksbg/internal/state"
)

// journalPath is where the run of a plan file is kept: NAME.journal in .eksbg/
// beside the plan file, unless --state names another place.
func journalPath(planPath, name, override string) string {
	if override != "" {
		return override
	}
	return filepath.Join(filepath.Dir(planPath), ".eksbg", name+".journal")
}

// newestClosed finds the last closed run beside the journal: NAME.RUNID.journal,
// run ids sort by time. It returns "" when there is none.
func newestClosed(path string) string {
	stem := strings.TrimSuffix(path, ".journal")
	found, err := filepath.Glob(escapeGlob(stem) + ".*.journal")
	if err != nil || len(found) == 0 {
		return ""
	}
	sort.Strings(found)
	return found[len(found)-1]
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// readRun reads the open run, or else the newest closed one. It returns no records
// and no error where there has never been a run.
func readRun(path string) (records []state.Record, from string, rec state.Recovery, err error) {
	records, rec, err = state.Read(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return records, path, rec, err
	}
	from = newestClosed(path)
	if from == "" {
		return nil, path, state.Recovery{}, nil
	}
	records, rec, err = state.Read(from)
	return records, from, rec, err
}

// lineageOf is the lineage of the runs beside the journal, or "".
func lineageOf(path string) string {
	records, _, _, err := readRun(path)
	if err != nil || len(records) == 0 || records[0].Plan == nil {
		return ""
	}
	return records[0].Plan.Lineage
}

// me says who runs this process, as far as the machine knows.
func me(arn string) state.Who {
	host, _ := os.Hostname() // without a host name the rest still tells
	return state.Who{ARN: arn, User: userName(), Host: host, PID: os.Getpid()}
}

// userName is who runs this: services and containers often say it in no variable, and
// some of their users have no name but a number.
func userName() string {
	for _, key := range []string{"USER", "LOGNAME"} {
		if name := os.Getenv(key); name != "" {
			return name
		}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
