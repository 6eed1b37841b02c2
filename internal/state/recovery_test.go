package state_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

// anyText draws texts with what may break a line: quotes, newlines, escapes, nulls.
func anyText(t *rapid.T, name string) string {
	return rapid.OneOf(rapid.String(), rapid.StringMatching(`["\\{}\n\x00\x1b, a-z:]{0,20}`)).Draw(t, name)
}

// written makes a journal of random records and returns its records and its content.
func written(t *rapid.T, dir string) (path string, records []state.Record, content []byte) {
	path = filepath.Join(dir, rapid.StringMatching(`[a-z]{8}`).Draw(t, "name")+".journal")
	for _, suffix := range []string{"", ".lock"} { // a name that was drawn before
		_ = os.Remove(path + suffix)
	}
	small := &state.Plan{Run: "r1", Name: "shop"}
	j, err := state.Create(context.Background(), path, small, state.Who{}, newClock())
	if err != nil {
		t.Fatal(err)
	}
	rec := j.Recorder("green/restart/1")
	for range rapid.IntRange(0, 4).Draw(t, "records") {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			rec.Waiting(anyText(t, "waiting"))
		case 1:
			_, err = rec.Intent("k8s:patch deployments", anyText(t, "object"), map[string]string{"stamp": anyText(t, "stamp")}, []int{1})
		case 2:
			err = rec.Record(state.Record{Kind: state.RecordTraffic, Traffic: []state.Share{{Target: anyText(t, "target"), Blue: rapid.IntRange(0, 255).Draw(t, "weight")}}})
		case 3:
			exit := 4
			_, err = j.Append(state.Record{Kind: state.RecordStopped, Text: anyText(t, "text"), Next: anyText(t, "next"), Exit: &exit})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	records = j.Records("")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, records, content
}

// lineOf is the number of the line that a byte belongs to, its newline included.
func lineOf(content []byte, at int) int { return bytes.Count(content[:at], []byte("\n")) + 1 }

// TestCutAnywhere: of a journal that ends at any byte, everything before the last line
// is there, and what is missing is told.
func TestCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path, records, content := written(t, dir)
		for cut := range len(content) + 1 {
			whole := bytes.Count(content[:cut], []byte("\n"))
			have, rec, err := state.Parse(path, content[:cut])
			if whole == 0 {
				var damaged *state.ErrDamaged
				if !errors.As(err, &damaged) || damaged.Line != 1 {
					t.Fatalf("cut at %d within the plan: %v", cut, err)
				}
				continue
			}
			torn := 0
			if cut > 0 && content[cut-1] != '\n' {
				torn = whole + 1
			}
			if err != nil || rec.TornLine != torn {
				t.Fatalf("cut at %d: torn line %d, %v; want %d", cut, rec.TornLine, err, torn)
			}
			if !reflect.DeepEqual(records[:whole], have) {
				t.Fatalf("cut at %d:\n%s", cut, cmp.Diff(records[:whole], have))
			}
		}
	})
}

// TestAnyChangedByte: a changed byte is refused with its line, or it is in the last
// line and only that is dropped. It never changes a record and never loses another.
func TestAnyChangedByte(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path, records, content := written(t, dir)
		for range 40 {
			at := rapid.IntRange(0, len(content)-1).Draw(t, "at")
			changed := bytes.Clone(content)
			changed[at] ^= rapid.Byte().Filter(func(b byte) bool { return b != 0 }).Draw(t, "by")
			line := lineOf(content, at)
			have, rec, err := state.Parse(path, changed)
			var damaged *state.ErrDamaged
			var newer *state.ErrNewerFormat
			switch {
			case errors.As(err, &damaged) && damaged.Line == line:
			case errors.As(err, &newer) && line == 1:
			case err == nil && line == len(records) && line > 1 && rec.TornLine == line && reflect.DeepEqual(records[:line-1], have):
			default:
				t.Fatalf("byte %d in line %d of %d from %q to %q: %d records, torn line %d, %v",
					at, line, len(records), content[at], changed[at], len(have), rec.TornLine, err)
			}
		}
	})
}

// TestLinesOutOfOrder: a line that is gone, doubled or exchanged is refused.
func TestLinesOutOfOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	j := create(t, path)
	for i := range 4 {
		if _, err := j.Append(state.Record{Kind: state.RecordNote, Text: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := strings.SplitAfter(strings.TrimSuffix(string(content), "\n"), "\n")
	l[4] += "\n"
	valid := strings.Replace(l[4], `"3"`, `"4"`, 1)
	for name, c := range map[string]struct {
		lines []string
		line  int
	}{
		"gone":                       {[]string{l[0], l[1], l[3], l[4]}, 3},
		"doubled":                    {[]string{l[0], l[1], l[1], l[2]}, 3},
		"exchanged":                  {[]string{l[0], l[2], l[1], l[3]}, 2},
		"empty line":                 {[]string{l[0], l[1], "\n", l[2]}, 3},
		"no plan first":              {[]string{l[1], l[2]}, 1},
		"a plan again":               {[]string{l[0], strings.Replace(l[0], `"seq":1`, `"seq":2`, 1)}, 2},
		"empty":                      {nil, 1},
		"no object":                  {[]string{l[0], "7\n"}, 2},
		"changed but JSON, at last":  {[]string{l[0], l[1], l[2], l[3], valid}, 5},
		"torn in the middle":         {[]string{l[0], l[1][:20] + "\n", l[2]}, 2},
		"two run together at last":   {[]string{l[0], l[1], strings.TrimSuffix(l[2], "\n") + l[3]}, 3},
		"one and a half at last":     {[]string{l[0], l[1], strings.TrimSuffix(l[2], "\n") + l[3][:9]}, 3},
		"whole, but spoiled at last": {[]string{l[0], l[1], strings.Replace(l[2], `"kind":`, `"kind";`, 1)}, 3},
	} {
		if err := os.WriteFile(path, []byte(strings.Join(c.lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := state.Open(path, newClock())
		var damaged *state.ErrDamaged
		if !errors.As(err, &damaged) || damaged.Line != c.line || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v; want damage in line %d", name, err, c.line)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != strings.Join(c.lines, "") {
			t.Errorf("%s: a refused journal was changed", name)
		}
	}
}

// TestTornLineIsDroppedAndSaid: in each form in which a crash leaves it.
func TestTornLineIsDroppedAndSaid(t *testing.T) {
	for name, tail := range map[string]string{
		"half":             `{"seq":3,"time":"2026-11-30T0`,
		"garbage":          "garbage\n",
		"zeros":            strings.Repeat("\x00", 4096),
		"a hole of zeros":  strings.Repeat("\x00", 40) + `t":"x","crc":"01234567"}` + "\n",
		"without newline":  `{"seq":3,"kind":"note"}`,
		"only a newline":   "\n",
		"binary, no crash": "\xff\xfe",
	} {
		path := filepath.Join(t.TempDir(), "shop.journal")
		j := create(t, path)
		if _, err := j.Append(state.Record{Kind: state.RecordNote, Text: "kept"}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(bytes.Clone(whole), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		j, rec, err := state.Open(path, newClock())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := state.Recovery{TornLine: 3, TornBytes: int64(len(tail))}
		if rec != want || !strings.Contains(rec.String(), "line 3") || len(j.Records("")) != 2 {
			t.Errorf("%s: %+v with %d records", name, rec, len(j.Records("")))
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, whole) {
			t.Errorf("%s: the torn line is still on the disk", name)
		}
		if r, err := j.Append(state.Record{Kind: state.RecordNote}); err != nil || r.Seq != 3 {
			t.Errorf("%s: goes on with %d, %v", name, r.Seq, err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if _, rec, err := state.Read(path); err != nil || rec != (state.Recovery{}) {
			t.Errorf("%s: afterwards %+v, %v", name, rec, err)
		}
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	p := pair()
	p.Format, p.Tool = state.FormatVersion+1, "v9.0.0"
	// A newer format may be different in everything else.
	b, err := json.Marshal(map[string]any{"seq": 1, "kind": "plan", "plan": p, "seal": "?"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, "\n@ and other lines\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, rerr := state.Read(path)
	_, _, oerr := state.Open(path, newClock())
	_, lerr := state.LoadPlan(path)
	for _, err := range []error{rerr, oerr, lerr} {
		var newer *state.ErrNewerFormat
		if !errors.As(err, &newer) || newer.Format != state.FormatVersion+1 || !strings.Contains(err.Error(), "v9.0.0") {
			t.Errorf("got %v", err)
		}
	}
}

func TestNoJournal(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "not", "shop.journal")
	_, _, rerr := state.Read(path)
	_, _, oerr := state.Open(path, newClock())
	for _, err := range []error{rerr, oerr} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("looking left %v behind", left)
	}
}
