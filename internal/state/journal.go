package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gofrs/flock"
	"k8s.io/utils/clock"
)

// file is what the journal needs of an open file; tests put failing ones in.
type file interface {
	Write([]byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// openFile opens a file for appending.
type openFile func(path string, flag int) (file, error)

func osFile(path string, flag int) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|flag, 0o600)
}

// Journal is the record of one run, open for appending; its lock is held until Close
// or Archive. All methods are safe for concurrent use.
type Journal struct {
	path  string
	clock clock.PassiveClock
	lock  *flock.Flock

	// feed is held over an append and the calls of the subscribers, which keeps their
	// order; mu guards the fields below, so that subscribers can read the journal.
	feed        sync.Mutex
	subscribers []func(Record)

	mu      sync.Mutex
	f       file
	size    int64
	dirty   bool
	broken  error
	closed  bool
	records []Record
}

// Create begins the journal of a run at path, which must not exist (ErrExists), with
// the plan as its first record. The file is made 0600, its directory 0700 where it is
// missing; both are durable on return, and a journal without its first record is never
// left behind. Plan.Format is set. The errors are *ErrLocked and those of the file
// system, with the cure.
func Create(ctx context.Context, path string, plan *Plan, who Who, clk clock.PassiveClock) (*Journal, error) {
	return create(ctx, path, plan, who, clk, osFile)
}

// CanCreate tells beforehand whether Create could write beside path: somebody is asked
// between the two. It makes the directory. The errors are those of the file system, with
// the cure.
func CanCreate(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unwritable(path, err)
	}
	f, err := os.CreateTemp(dir, ".journal-*")
	if err != nil {
		return unwritable(path, err)
	}
	_, err = f.Write([]byte("x"))
	err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	if err != nil {
		return unwritable(path, err)
	}
	return nil
}

func create(ctx context.Context, path string, plan *Plan, who Who, clk clock.PassiveClock, open openFile) (*Journal, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("create journal %s: %w", path, err)
	}
	if err := checkRunID(plan.Run); err != nil {
		return nil, fmt.Errorf("create journal %s: %w", path, err)
	}
	lock, err := lockJournal(path)
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, clock: clk, lock: lock}
	if err := j.begin(plan, who, open); err != nil {
		_ = lock.Unlock() // the first error is the one to tell
		return nil, err
	}
	return j, nil
}

// begin writes the first record to a file of another name and renames it when it is
// durable.
func (j *Journal) begin(plan *Plan, who Who, open openFile) error {
	there, err := exists(j.path)
	if err != nil {
		return unwritable(j.path, err)
	}
	if there {
		return fmt.Errorf("create journal %s: %w", j.path, ErrExists)
	}
	fresh := j.path + ".new"
	if err := os.Remove(fresh); err != nil && !os.IsNotExist(err) {
		return unwritable(j.path, err)
	}
	f, err := open(fresh, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return unwritable(j.path, err)
	}
	j.f = f
	p := *plan
	p.Format = FormatVersion
	_, err = j.write(Record{Kind: RecordPlan, Plan: &p, Who: &who, Text: planText(&p)})
	if err == nil {
		err = os.Rename(fresh, j.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(j.path))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(fresh)
		return unwritable(j.path, err)
	}
	return nil
}

func planText(p *Plan) string {
	return fmt.Sprintf("%s %s to %s in %d steps", p.Name, p.Variant, p.Target, len(p.Steps))
}

// Open takes up the journal of a run: it takes the lock, reads and verifies all
// records, and drops a torn last line from the disk, which Recovery then tells. The
// errors are *ErrLocked, *ErrDamaged, *ErrNewerFormat and those of the file system
// (fs.ErrNotExist for no journal, in which case nothing is created).
func Open(path string, clk clock.PassiveClock) (*Journal, Recovery, error) {
	return open(path, clk, osFile)
}

func open(path string, clk clock.PassiveClock, of openFile) (*Journal, Recovery, error) {
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, Recovery{}, fmt.Errorf("open journal: %w", err)
		}
		return nil, Recovery{}, unwritable(path, err)
	}
	lock, err := lockJournal(path)
	if err != nil {
		return nil, Recovery{}, err
	}
	j := &Journal{path: path, clock: clk, lock: lock}
	rec, err := j.resume(of)
	if err != nil {
		_ = lock.Unlock() // the first error is the one to tell
		return nil, Recovery{}, err
	}
	return j, rec, nil
}

func (j *Journal) resume(of openFile) (Recovery, error) {
	content, err := readBounded(j.path)
	if err != nil {
		return Recovery{}, fmt.Errorf("open journal: %w", err)
	}
	records, rec, good, err := parse(j.path, content)
	if err != nil {
		return rec, err
	}
	f, err := of(j.path, 0)
	if err != nil {
		return rec, unwritable(j.path, err)
	}
	if rec.TornLine != 0 {
		err = f.Truncate(good)
	}
	// Waiting records of a process that died may be in memory only.
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		return rec, unwritable(j.path, err)
	}
	j.f, j.size, j.records = f, good, records
	return rec, nil
}

// Append writes a record and returns it as it will be read again: Seq and Time are
// set, texts are cleaned. On return it is durable, unless it is a RecordWaiting. After
// a failed write the journal is broken and every later Append returns the same error;
// no half line is ever followed by another.
func (j *Journal) Append(r Record) (Record, error) {
	if r.Kind == RecordPlan {
		return Record{}, errors.New("append to the journal: a plan is only ever its first record")
	}
	j.feed.Lock()
	defer j.feed.Unlock()
	r, err := j.write(r)
	if err != nil {
		return Record{}, err
	}
	for _, f := range j.subscribers {
		f(r)
	}
	return r, nil
}

func (j *Journal) write(r Record) (Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.broken != nil:
		return Record{}, j.broken
	case j.closed:
		return Record{}, fmt.Errorf("append to journal %s: %w", j.path, ErrClosed)
	case r.Kind == "":
		return Record{}, errors.New("append to the journal: a record without kind")
	case r.Kind == RecordOutcome && !j.isIntent(r.Intent):
		return Record{}, fmt.Errorf("append to journal %s: an outcome of record %d, which is no intent", j.path, r.Intent)
	}
	r.Seq = int64(len(j.records)) + 1
	r.Time = j.clock.Now().UTC()
	line, err := encodeLine(cleaned(r))
	if err != nil {
		return Record{}, fmt.Errorf("append to journal %s: %w", j.path, err)
	}
	// What is kept and handed out is what a later process will read.
	kept, err := decodeLine(line[:len(line)-1])
	if err != nil {
		return Record{}, fmt.Errorf("append to journal %s: a %s record does not read back: %w", j.path, r.Kind, err)
	}
	if err := j.commit(line, r.Kind != RecordWaiting); err != nil {
		j.broken = fmt.Errorf("journal %s cannot be written any more: %w; free the disk or mend the folder and run the same command again", j.path, err)
		return Record{}, j.broken
	}
	j.records = append(j.records, kept)
	if kept.Who != nil && (kept.Kind == RecordPlan || kept.Kind == RecordResumed) {
		_ = sign(j.path, *kept.Who) // a hint for people, of no weight
	}
	return kept, nil
}

// commit brings one line to the file in one write.
func (j *Journal) commit(line []byte, durable bool) error {
	n, err := j.f.Write(line)
	if err != nil || n != len(line) {
		if err == nil {
			err = fmt.Errorf("only %d of %d bytes were written", n, len(line))
		}
		return errors.Join(err, j.f.Truncate(j.size))
	}
	j.size += int64(n)
	j.dirty = true
	if !durable {
		return nil
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	j.dirty = false
	return nil
}

func (j *Journal) isIntent(seq int64) bool {
	return seq >= 1 && seq <= int64(len(j.records)) && j.records[seq-1].Kind == RecordIntent
}

// OnRecord subscribes f to the records appended from now on, in their order, each
// after it is durable. It runs on the goroutine that appends: it must be quick, may
// read the journal, and must not append.
func (j *Journal) OnRecord(f func(Record)) {
	j.feed.Lock()
	defer j.feed.Unlock()
	j.subscribers = append(j.subscribers, f)
}

// Records returns the records of one step in order; "" returns all of the run. The
// records themselves are shared and not to be changed.
func (j *Journal) Records(step string) []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if step == "" {
		return slices.Clone(j.records)
	}
	var out []Record
	for _, r := range j.records {
		if r.Step == step {
			out = append(out, r)
		}
	}
	return out
}

// Plan returns the plan that the run walks.
func (j *Journal) Plan() *Plan {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records[0].Plan
}

// Path returns where the journal is.
func (j *Journal) Path() string { return j.path }

// Err returns why the journal cannot be written any more; nil while it can.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

// Closed tells whether the run is over: a RecordClosed is in the journal.
func (j *Journal) Closed() bool {
	_, over := LastOf(j.Records(""), RecordClosed)
	return over
}

// Close makes everything durable and lets go of the file and the lock. The run goes
// on with the next Open. Closing twice is nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	var err error
	if j.dirty && j.broken == nil {
		err = j.f.Sync()
	}
	if err = errors.Join(err, j.f.Close(), j.lock.Unlock()); err != nil {
		return fmt.Errorf("close journal %s: %w", j.path, err)
	}
	return nil
}

// Archive puts the journal of a run that is over away as NAME.RUNID.journal in the
// same folder, which makes room for the next run, and closes it. It returns the new
// path. A file at the journal's path that is of another run is left alone: somebody
// removed this one while it was open.
func (j *Journal) Archive() (string, error) {
	if !j.Closed() {
		return "", fmt.Errorf("archive journal %s: its run is not over", j.path)
	}
	run := j.Plan().Run
	if err := checkRunID(run); err != nil {
		return "", fmt.Errorf("archive journal %s: %w", j.path, err)
	}
	to := strings.TrimSuffix(j.path, ".journal") + "." + run + ".journal"
	j.mu.Lock()
	gone := j.closed
	j.mu.Unlock()
	if gone {
		return "", fmt.Errorf("archive journal %s: %w", j.path, ErrClosed)
	}
	if err := j.stillOurs(run); err != nil {
		return "", err
	}
	there, err := exists(to)
	if err == nil && there {
		err = fmt.Errorf("%s is there already; move it away", to)
	}
	if err == nil {
		err = os.Rename(j.path, to)
	}
	if err == nil {
		err = syncDir(filepath.Dir(j.path))
	}
	if err = errors.Join(err, j.Close()); err != nil {
		return "", fmt.Errorf("archive journal %s: %w", j.path, err)
	}
	return to, nil
}

// stillOurs tells whether the file at the journal's path is the one that is open.
func (j *Journal) stillOurs(run string) error {
	records, _, err := Read(j.path)
	if err != nil {
		return fmt.Errorf("archive journal %s: %w", j.path, err)
	}
	if got := records[0].Plan.Run; got != run {
		return fmt.Errorf("archive journal %s: it was removed while run %s was under way, and is of run %s now; leave it to that run", j.path, run, got)
	}
	return nil
}
