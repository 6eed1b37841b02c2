package state

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrExists is wrapped by Create when there is a journal already: the run in it has
// to be resumed (Open) or, once closed, put away (Archive) first.
var ErrExists = errors.New("a journal is there already")

// ErrClosed is returned by Append after Close.
var ErrClosed = errors.New("the journal is closed")

// ErrLocked says that another process holds the journal (exit 6).
type ErrLocked struct {
	// Path is the journal's.
	Path string
	// Holder is who has it, as far as it left word; all empty when it did not.
	Holder Who
}

// Error names the journal, the holder and the cure.
func (e *ErrLocked) Error() string {
	return fmt.Sprintf("journal %s is in use by %s; wait until it ends, or stop it there; `eksbg status` shows how far it is",
		e.Path, e.Holder)
}

// String names the person or pipeline: "arn:… (ops on bastion, pid 4711)". What is
// not known is left out; with nothing known it is "another process".
func (w Who) String() string {
	var at []string
	switch {
	case w.User != "" && w.Host != "":
		at = append(at, w.User+" on "+w.Host)
	case w.User != "":
		at = append(at, w.User)
	case w.Host != "":
		at = append(at, "somebody on "+w.Host)
	}
	if w.PID != 0 {
		at = append(at, fmt.Sprintf("pid %d", w.PID))
	}
	where := strings.Join(at, ", ")
	switch {
	case w.ARN == "" && where == "":
		return "another process"
	case w.ARN == "":
		return where
	case where == "":
		return w.ARN
	}
	return w.ARN + " (" + where + ")"
}

// ErrDamaged says that a journal or a saved plan cannot be trusted: something else
// than a torn last line is wrong with it.
type ErrDamaged struct {
	Path string
	// Line is the first line that is not what was written, counted from 1.
	Line int
	// Why says what is wrong with it.
	Why string
}

// Error names the file, the line and the cure.
func (e *ErrDamaged) Error() string {
	return fmt.Sprintf("%s is damaged in line %d: %s; put back a copy of the file, or move it away and begin anew "+
		"(what it recorded about the way back is then gone)", e.Path, e.Line, e.Why)
}

// ErrNewerFormat says that a journal or a saved plan was written by a newer eksbg
// than this one.
type ErrNewerFormat struct {
	Path string
	// Format is the file's, Known the newest that this build reads.
	Format, Known int
	// Tool is the version of eksbg that wrote it.
	Tool string
}

// Error names both formats and the cure.
func (e *ErrNewerFormat) Error() string {
	by := "a newer eksbg"
	if e.Tool != "" {
		by = "eksbg " + e.Tool
	}
	return fmt.Sprintf("%s has format %d, written by %s, and this eksbg reads up to %d; use that version or a newer one",
		e.Path, e.Format, Clean(by), e.Known)
}

// ErrMismatch says that a journal belongs to something else than the plan.
type ErrMismatch struct {
	Path string
	// What differs: "cluster blue", "variant".
	What string
	// Journal and Plan are the two values.
	Journal, Plan string
}

// Error names both sides and the cure.
func (e *ErrMismatch) Error() string {
	return fmt.Sprintf("journal %s is of another pair: its %s is %s, the plan's is %s; name another journal with --state, "+
		"or go on with the plan file that it was made for", e.Path, e.What, e.Journal, e.Plan)
}

// Matches tells whether the journal's run is of the pair that plan is about: same
// name, region and variant, and in each cluster the same ARN and creation time as far
// as both know them (semantics 6: a cluster may not exist yet). It returns an
// *ErrMismatch that names both sides.
func (j *Journal) Matches(plan *Plan) error {
	have := j.Plan()
	differ := func(what, a, b string) error {
		if a == b {
			return nil
		}
		return &ErrMismatch{Path: j.path, What: what, Journal: a, Plan: b}
	}
	for _, err := range []error{
		differ("name", have.Name, plan.Name),
		differ("region", have.Region, plan.Region),
		differ("variant", string(have.Variant), string(plan.Variant)),
	} {
		if err != nil {
			return err
		}
	}
	for _, side := range Sides {
		a, b := have.Clusters[side], plan.Clusters[side]
		if a.ARN != "" && b.ARN != "" {
			if err := differ("cluster "+string(side), a.ARN, b.ARN); err != nil {
				return err
			}
		}
		if !a.CreatedAt.IsZero() && !b.CreatedAt.IsZero() && !a.CreatedAt.Equal(b.CreatedAt) {
			return differ("cluster "+string(side), born(a), born(b))
		}
	}
	return nil
}

// born names a cluster with its creation time, which is all that tells a cluster from
// a later one of the same name.
func born(v ClusterView) string {
	return fmt.Sprintf("%s created at %s", v.ARN, v.CreatedAt.UTC().Format(time.RFC3339))
}
