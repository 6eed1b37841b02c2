package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// maxJournal bounds what is read into memory, in bytes. A journal grows by a few
// hundred bytes a poll; a day of it is a few MiB.
const maxJournal = 256 << 20

// Recovery says what had to be done to read a journal.
type Recovery struct {
	// TornLine is the number of the last line when it was incomplete and dropped: a
	// process died, or is busy, in the middle of an append. Nothing was done on the
	// strength of such a record. 0 means that there was none.
	TornLine int
	// TornBytes is how long the dropped line was.
	TornBytes int64
}

// String says it in one line; empty when there is nothing to say.
func (r Recovery) String() string {
	if r.TornLine == 0 {
		return ""
	}
	return fmt.Sprintf("line %d was not written to its end (%d bytes) and is dropped", r.TornLine, r.TornBytes)
}

// Read reads a journal without taking its lock, so that status works while another
// process writes; a torn last line is normal then. The errors are *ErrDamaged,
// *ErrNewerFormat, and those of the file system (fs.ErrNotExist for no journal).
func Read(path string) ([]Record, Recovery, error) {
	content, err := readBounded(path)
	if err != nil {
		return nil, Recovery{}, fmt.Errorf("read journal: %w", err)
	}
	records, rec, _, err := parse(path, content)
	return records, rec, err
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	content, err := io.ReadAll(io.LimitReader(f, maxJournal+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxJournal {
		return nil, fmt.Errorf("%s is larger than %d MiB and no journal of eksbg", path, maxJournal>>20)
	}
	return content, nil
}

// parse reads the content of a journal. good is the length of what is whole. The
// result is every record in order with at most the last line missing, or an error.
func parse(path string, content []byte) (records []Record, rec Recovery, good int64, err error) {
	damaged := func(line int, format string, args ...any) error {
		return &ErrDamaged{Path: path, Line: line, Why: fmt.Sprintf(format, args...)}
	}
	if err := newer(path, content); err != nil {
		return nil, rec, 0, err
	}
	for n, rest := 1, content; len(rest) > 0; n++ {
		line, tail, newline := bytes.Cut(rest, []byte("\n"))
		last := len(tail) == 0
		if last && torn(line, newline) {
			rec = Recovery{TornLine: n, TornBytes: int64(len(rest))}
			break
		}
		r, err := decodeLine(line)
		switch {
		case err != nil:
			return nil, rec, 0, damaged(n, "%v", err)
		case r.Seq != int64(n):
			return nil, rec, 0, damaged(n, "it holds record %d where %d is due", r.Seq, n)
		case n == 1 && (r.Kind != RecordPlan || r.Plan == nil):
			return nil, rec, 0, damaged(n, "it is no plan, with which every journal begins")
		case n == 1 && r.Plan.Format < 1:
			return nil, rec, 0, damaged(n, "it states no format version")
		case n > 1 && r.Kind == RecordPlan:
			return nil, rec, 0, damaged(n, "it is a second plan")
		}
		records = append(records, r)
		good += int64(len(rest) - len(tail))
		rest = tail
	}
	if len(records) == 0 {
		return nil, rec, 0, damaged(1, "the plan, with which every journal begins, is not whole")
	}
	return records, rec, good, nil
}

// newer looks for a higher format version before anything else is judged: what else
// is different in a newer format cannot be known.
func newer(path string, content []byte) error {
	var head struct {
		Plan struct {
			Format int    `json:"format"`
			Tool   string `json:"tool"`
		} `json:"plan"`
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	if json.Unmarshal(line, &head) == nil && head.Plan.Format > FormatVersion {
		return &ErrNewerFormat{Path: path, Format: head.Plan.Format, Known: FormatVersion, Tool: head.Plan.Tool}
	}
	return nil
}
