package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
)

// A line of the journal is a JSON object whose last member is a CRC-32C of the bytes
// before it. JSON alone would let a flipped bit in a weight or a token pass.
const (
	trailerHead = `,"crc":"`
	trailerTail = `"}`
	trailerLen  = len(trailerHead) + 8 + len(trailerTail)
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	trailer    = regexp.MustCompile(`,"crc":"[0-9a-f]{8}"\}`)
)

// encodeLine renders a record as one line, newline included.
func encodeLine(r Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("encode a %s record: %w", r.Kind, err)
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	sum := crc32.Checksum(body, castagnoli)
	return fmt.Appendf(body, "%s%08x%s\n", trailerHead, sum, trailerTail), nil
}

// decodeLine is the inverse of encodeLine; line comes without its newline.
func decodeLine(line []byte) (Record, error) {
	var r Record
	if !json.Valid(line) {
		return r, errors.New("it is no whole JSON record")
	}
	at := len(line) - trailerLen
	if at < 1 || !trailer.Match(line[at:]) {
		return r, errors.New("its check sum is missing")
	}
	want := string(line[at+len(trailerHead) : len(line)-len(trailerTail)])
	if have := fmt.Sprintf("%08x", crc32.Checksum(line[:at], castagnoli)); have != want {
		return r, fmt.Errorf("its check sum is %s where %s is written: it was changed after it was written", have, want)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("it does not read as a record: %w", err)
	}
	return r, nil
}

// torn tells whether a last line is what an interrupted append leaves behind: a part
// of one record, or one with a hole of zeros where a block never reached the disk. A
// line that was once whole (its check sum's member is there) is damage instead, and so
// are two records run together, of which one was durable.
func torn(line []byte, newline bool) bool {
	if json.Valid(line) {
		return !newline
	}
	for _, at := range trailer.FindAllIndex(line, -1) {
		if at[1] < len(line) || !bytes.ContainsRune(line, 0) {
			return false
		}
	}
	return true
}

// cleaned returns a record whose texts cannot drive a terminal (they may quote a
// cluster or AWS). Details stay as they are: they are data, and JSON escapes them.
func cleaned(r Record) Record {
	r.Text = Clean(r.Text)
	r.Next = cleanLines(r.Next)
	if r.Change != nil {
		c := *r.Change
		c.Call, c.Object = Clean(c.Call), Clean(c.Object)
		r.Change = &c
	}
	if r.Gate != nil {
		g := *r.Gate
		g.Target, g.Text = Clean(g.Target), Clean(g.Text)
		r.Gate = &g
	}
	if r.Spec != nil {
		s := cleanedSpec(*r.Spec)
		r.Spec = &s
	}
	if r.Cluster != nil {
		c := cleanedView(*r.Cluster)
		r.Cluster = &c
	}
	if r.Plan != nil {
		p := *r.Plan
		p.Findings = append([]Finding(nil), p.Findings...)
		for i := range p.Findings {
			f := &p.Findings[i]
			f.Check, f.Text, f.Cure = Clean(f.Check), Clean(f.Text), cleanLines(f.Cure)
		}
		p.Steps = append([]StepSpec(nil), p.Steps...)
		for i := range p.Steps {
			p.Steps[i] = cleanedSpec(p.Steps[i])
		}
		if p.Clusters != nil {
			views := make(map[Side]ClusterView, len(p.Clusters))
			for side, v := range p.Clusters {
				views[side] = cleanedView(v)
			}
			p.Clusters = views
		}
		r.Plan = &p
	}
	return r
}

func cleanedSpec(s StepSpec) StepSpec {
	s.ID, s.Title, s.Changes, s.Cause = Clean(s.ID), Clean(s.Title), Clean(s.Changes), Clean(s.Cause)
	s.Addon, s.From, s.To = Clean(s.Addon), Clean(s.From), Clean(s.To)
	return s
}

func cleanedView(v ClusterView) ClusterView {
	v.Name, v.ARN, v.Version, v.Status = Clean(v.Name), Clean(v.ARN), Clean(v.Version), Clean(v.Status)
	return v
}

// cleanLines cleans text that may hold one command a line.
func cleanLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}
