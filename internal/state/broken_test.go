package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// disk is a file that can fail, and that knows what a crash would leave of it.
type disk struct {
	*os.File
	write, sync, truncate error
	// short is how much of the next failing write arrives all the same.
	short  int
	size   int64
	synced int64
	syncs  int
}

func (d *disk) Write(b []byte) (int, error) {
	if d.write == nil && d.short == 0 {
		n, err := d.File.Write(b)
		d.size += int64(n)
		return n, err
	}
	n, err := d.File.Write(b[:min(d.short, len(b))])
	d.size += int64(n)
	return n, errors.Join(err, d.write)
}

func (d *disk) Sync() error {
	if d.sync != nil {
		return d.sync
	}
	d.syncs++
	d.synced = d.size
	return d.File.Sync()
}

func (d *disk) Truncate(size int64) error {
	if d.truncate != nil {
		return d.truncate
	}
	d.size = size
	d.synced = min(d.synced, size)
	return d.File.Truncate(size)
}

// opener opens files on disks and keeps the last one.
func opener(last **disk, prepare func(*disk)) openFile {
	return func(path string, flag int) (file, error) {
		f, err := osFile(path, flag)
		if err != nil {
			return nil, err
		}
		d := &disk{File: f.(*os.File)}
		if info, err := d.Stat(); err == nil {
			d.size, d.synced = info.Size(), info.Size()
		}
		if prepare != nil {
			prepare(d)
		}
		*last = d
		return d, nil
	}
}

func testPlan() *Plan {
	return &Plan{Run: "20261130T010203-0a1b2c", Name: "shop", Variant: Hot, Target: "1.33"}
}

func testClock() *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC))
}

func newTestJournal(t interface {
	Helper()
	Fatal(...any)
}, path string) (*Journal, *disk) {
	t.Helper()
	var d *disk
	j, err := create(context.Background(), path, testPlan(), Who{User: "ops"}, testClock(), opener(&d, nil))
	if err != nil {
		t.Fatal(err)
	}
	return j, d
}

// TestFailedWriteBreaksTheJournal: whatever fails, the record is not there, nothing is
// written after it, and the next process reads what was durable before.
func TestFailedWriteBreaksTheJournal(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*disk)
		// kept is true where the failed record may be in the file as a whole, since only
		// its durability is in doubt.
		kept bool
		torn bool
	}{
		"nothing arrives":              {fail: func(d *disk) { d.write = syscall.ENOSPC }},
		"a part arrives":               {fail: func(d *disk) { d.write, d.short = syscall.ENOSPC, 20 }},
		"a part arrives without error": {fail: func(d *disk) { d.short = 20 }},
		"a part arrives and stays":     {fail: func(d *disk) { d.write, d.short, d.truncate = syscall.EIO, 20, syscall.EIO }, torn: true},
		"fsync fails":                  {fail: func(d *disk) { d.sync = syscall.EIO }, kept: true},
		"all arrives, with an error":   {fail: func(d *disk) { d.short, d.truncate = 1<<20, syscall.EIO; d.write = syscall.EIO }, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "shop.journal")
			j, d := newTestJournal(t, path)
			rec := j.Recorder("traffic/50")
			if _, err := rec.Intent("route53:ChangeResourceRecordSets", "api", nil, nil); err != nil {
				t.Fatal(err)
			}
			fed := 0
			j.OnRecord(func(Record) { fed++ })
			c.fail(d)
			_, first := j.Append(Record{Kind: RecordNote, Text: "this is lost"})
			if first == nil || !strings.Contains(first.Error(), path) {
				t.Fatalf("failed write: %v", first)
			}
			*d = disk{File: d.File, size: d.size, synced: d.synced} // the disk works again
			for range 2 {
				if _, err := j.Append(Record{Kind: RecordNote}); !errors.Is(err, first) {
					t.Errorf("after it: %v", err)
				}
			}
			if err := rec.Outcome(2, Accepted, "", nil); !errors.Is(err, first) || !errors.Is(j.Err(), first) {
				t.Errorf("after it: %v, %v", err, j.Err())
			}
			rec.Waiting("does not fail the step")
			if fed != 0 || len(j.Records("")) != 2 {
				t.Errorf("%d records told, %d kept", fed, len(j.Records("")))
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			again, recovery, err := Open(path, testClock())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = again.Close() }()
			want := 2
			if c.kept {
				want = 3
			}
			if have := again.Records(""); len(have) != want || len(OpenIntents(have)) != 1 || (recovery.TornLine != 0) != c.torn {
				t.Errorf("read again: %d records, %+v", len(have), recovery)
			}
		})
	}
}

// TestFailedBeginningLeavesNothing: a journal without its plan is never left behind.
func TestFailedBeginningLeavesNothing(t *testing.T) {
	for name, fail := range map[string]func(*disk){
		"write": func(d *disk) { d.write, d.short = syscall.ENOSPC, 7 },
		"fsync": func(d *disk) { d.sync = syscall.EIO },
	} {
		path := filepath.Join(t.TempDir(), "shop.journal")
		var d *disk
		if _, err := create(context.Background(), path, testPlan(), Who{}, testClock(), opener(&d, fail)); err == nil || !strings.Contains(err.Error(), "--state") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 || left[0] != path+".lock" {
			t.Errorf("%s left %v", name, left)
		}
		j, err := Create(context.Background(), path, testPlan(), Who{}, testClock())
		if err != nil {
			t.Errorf("%s: not again: %v", name, err)
			continue
		}
		_ = j.Close()
	}
}

// TestSyncs: every record costs an fsync but those that only say what is waited for.
func TestSyncs(t *testing.T) {
	j, d := newTestJournal(t, filepath.Join(t.TempDir(), "shop.journal"))
	before := d.syncs
	for range 10 {
		j.Recorder("x").Waiting("InProgress")
	}
	if d.syncs != before {
		t.Errorf("waiting took %d fsyncs", d.syncs-before)
	}
	if _, err := j.Append(Record{Kind: RecordDone}); err != nil || d.syncs != before+1 {
		t.Errorf("%d fsyncs, %v", d.syncs-before, err)
	}
	j.Recorder("x").Waiting("InProgress")
	if err := j.Close(); err != nil || d.syncs != before+2 {
		t.Errorf("%d fsyncs at the end, %v", d.syncs-before, err)
	}
}

// TestCrash: the process is killed and the machine loses power at a random moment. What
// Append acknowledged as durable is there, and nothing that was not appended is.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, time.Duration(n).String()+".journal")
		j, d := newTestJournal(t, path)
		durable := 1
		for range rapid.IntRange(0, 12).Draw(t, "records") {
			kind := rapid.SampledFrom([]RecordKind{RecordWaiting, RecordWaiting, RecordNote, RecordIntent}).Draw(t, "kind")
			r, err := j.Append(Record{Kind: kind, Text: rapid.StringN(0, 30, -1).Draw(t, "text")})
			if err != nil {
				t.Fatal(err)
			}
			if kind != RecordWaiting {
				durable = int(r.Seq)
			}
		}
		all := j.Records("")
		survives := d.synced + rapid.Int64Range(0, d.size-d.synced).Draw(t, "survives")
		// Close would sync; a crash only drops the lock.
		if err := errors.Join(d.Close(), j.lock.Unlock(), os.Truncate(path, survives)); err != nil {
			t.Fatal(err)
		}
		again, _, err := Open(path, testClock())
		if err != nil {
			t.Fatal(err)
		}
		have := again.Records("")
		if len(have) < durable || len(have) > len(all) {
			t.Fatalf("%d records, %d were durable of %d", len(have), durable, len(all))
		}
		if diff := cmp.Diff(all[:len(have)], have); diff != "" {
			t.Fatal(diff)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRead: any content is read as records in order or refused at a line of it; and
// what is kept of it reads the same again, with nothing torn.
func FuzzRead(f *testing.F) {
	line, err := encodeLine(Record{Seq: 1, Kind: RecordPlan, Plan: &Plan{Format: 1, Run: "r"}})
	if err != nil {
		f.Fatal(err)
	}
	second, err := encodeLine(Record{Seq: 2, Kind: RecordNote, Text: "\x1b[2J \"}"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	f.Add(line)
	f.Add(append(line[:len(line):len(line)], second...))
	f.Add(append(line[:len(line):len(line)], second[:20]...))
	f.Add([]byte(`{"seq":1,"kind":"plan","plan":{"format":2}}` + "\n"))
	f.Add([]byte("\n\n\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		records, rec, good, err := parse("fuzz.journal", content)
		if err != nil {
			var damaged *ErrDamaged
			var newer *ErrNewerFormat
			if !errors.As(err, &newer) && (!errors.As(err, &damaged) || damaged.Line < 1 || damaged.Line > strings.Count(string(content), "\n")+1) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		for i, r := range records {
			if r.Seq != int64(i)+1 {
				t.Fatalf("record %d has seq %d", i, r.Seq)
			}
		}
		again, none, whole, err := parse("fuzz.journal", content[:good])
		if err != nil || none.TornLine != 0 || whole != good || !cmp.Equal(records, again) {
			t.Fatalf("what is kept reads differently: %v, %+v, %d of %d", err, none, whole, good)
		}
		if (rec.TornLine != 0) != (good < int64(len(content))) {
			t.Fatalf("%d of %d bytes kept and torn line %d", good, len(content), rec.TornLine)
		}
	})
}
