package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// sumOf is what of a plan decides whether it still fits the world. Left out are ids,
// times, counts of pods, and texts for people that hold such counts.
type sumOf struct {
	Format      int
	Name        string
	Region      string
	Variant     Variant
	Target      string
	FileSum     string
	Origin      Side
	Destination Side
	Clusters    []sumCluster
	Traffic     []Share
	Entrances   string
	Operation   Operation
	Side        Side
	Steps       []StepSpec
	Findings    []sumFinding
}

type sumCluster struct {
	Side      Side
	Name      string
	ARN       string
	CreatedAt int64
	Version   string
	// Owners counts the workloads with lagging pods; the pods themselves come and go.
	Owners int
}

type sumFinding struct {
	Check    string
	Severity Severity
	Side     Side
	Waived   bool
	CuredBy  string
}

// Sum is the fingerprint: the SHA-256, in hex, of what the plan saw and what it will
// do. Two plans of the same file and the same state of the world have the same, though
// made at different times by different people; clusters (ARN, creation time, version,
// number of lagging owners), weights, steps and findings (other than INFO) count.
func (p *Plan) Sum() string {
	s := sumOf{
		Format: FormatVersion, Name: p.Name, Region: p.Region, Variant: p.Variant, Target: p.Target,
		FileSum: p.FileSum, Origin: p.Origin, Destination: p.Destination,
		Traffic: append([]Share(nil), p.Traffic...), Entrances: string(p.Entrances),
		Operation: p.Operation, Side: p.Side,
	}
	for _, side := range Sides {
		c, ok := p.Clusters[side]
		if !ok {
			continue
		}
		v := sumCluster{Side: side, Name: c.Name, ARN: c.ARN, Version: c.Version, Owners: c.Owners}
		if !c.CreatedAt.IsZero() {
			v.CreatedAt = c.CreatedAt.Unix() // EKS states it in seconds
		}
		s.Clusters = append(s.Clusters, v)
	}
	sort.Slice(s.Traffic, func(i, k int) bool { return s.Traffic[i].Target < s.Traffic[k].Target })
	for _, step := range p.Steps {
		step.Title, step.Changes, step.Expect = "", "", Expect{}
		s.Steps = append(s.Steps, step)
	}
	for _, f := range p.Findings {
		if f.Severity == SeverityInfo {
			continue // Jobs that finish meanwhile make no plan stale
		}
		s.Findings = append(s.Findings, sumFinding{f.Check, f.Severity, f.Side, f.Waived != "", f.CuredBy})
	}
	sort.SliceStable(s.Findings, func(i, k int) bool {
		a, b := s.Findings[i], s.Findings[k]
		return fmt.Sprint(a) < fmt.Sprint(b)
	})
	b, err := json.Marshal(s)
	if err != nil {
		panic("state: a plan's fingerprint cannot fail to marshal: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// SavePlan writes a plan for a later apply: one line, the same document as the first
// record of a journal (semantics 5). Format is set, and Fingerprint where it is empty.
// The file is replaced as a whole, mode 0600.
func SavePlan(path string, p *Plan) error {
	c := *p
	c.Format = FormatVersion
	if c.Fingerprint == "" {
		c.Fingerprint = c.Sum()
	}
	line, err := encodeLine(cleaned(Record{Seq: 1, Time: c.CreatedAt.UTC(), Kind: RecordPlan, Plan: &c, Text: planText(&c)}))
	if err != nil {
		return fmt.Errorf("save plan %s: %w", path, err)
	}
	if err := replace(path, line); err != nil {
		return fmt.Errorf("save plan %s: %w; name a file in a folder that can be written", path, err)
	}
	return nil
}

// replace writes a file of another name in the same folder and renames it.
func replace(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

// LoadPlan reads what SavePlan wrote. The errors are *ErrDamaged, *ErrNewerFormat and
// those of the file system.
func LoadPlan(path string) (*Plan, error) {
	content, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("read saved plan: %w", err)
	}
	records, rec, _, err := parse(path, content)
	switch {
	case err != nil:
		return nil, err
	case len(records) > 1 || rec.TornLine != 0:
		return nil, fmt.Errorf("%s is a journal, not a saved plan; run the plan file that it belongs to", path)
	}
	return records[0].Plan, nil
}

// IsPlan tells a saved plan (or a journal), damaged or not, from a plan file that a
// person wrote.
func IsPlan(content []byte) bool {
	content = bytes.TrimSpace(content)
	if bytes.HasPrefix(content, []byte(`{"seq":`)) {
		return true
	}
	var head struct {
		Kind RecordKind      `json:"kind"`
		Plan json.RawMessage `json:"plan"`
	}
	err := json.NewDecoder(bytes.NewReader(content)).Decode(&head)
	return err == nil && head.Kind == RecordPlan && strings.HasPrefix(string(head.Plan), "{")
}
