package standby

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                          "plain",
		"\x1b[1;32mgreen\x1b[0m text":    "green text",
		"\x1b]0;title\x07after":          "after",
		"\x1b]8;;http://x\x1b\\link":     "link",
		"\x1b]0;never ended":             "0;never ended",
		"\x1b[12":                        "12",
		"\x1b(Bascii\x1bcreset\x1b":      "asciireset",
		"a\tb\x00\x07\x7f":               "a    b",
		"zero\u200bwidth\u202e\u00adend": "zerowidthend",
		"\xff\xfe broken":                "\ufffd\ufffd broken",
		"日本語 \x1b[2Jok":                  "日本語 ok",
		"\x1b[3\x1b[1mnested":            "3nested",
	} {
		if got := hookPlain(in); got != want {
			t.Errorf("hookPlain(%q) = %q, want %q", in, got, want)
		}
	}
}

// linesOf feeds the output in the given pieces.
func linesOf(m *hookMask, pieces ...string) []string {
	var out []string
	o := &hookOutput{mask: m, sinks: []func(string){func(s string) { out = append(out, s) }}}
	for _, p := range pieces {
		o.feed([]byte(p))
	}
	o.take(strings.NewReader(""))
	return out
}

func TestOutputLines(t *testing.T) {
	m := newHookMask([]string{longSecret})
	long := strings.Repeat("y", hookLine+100)
	tests := map[string]struct {
		pieces []string
		want   []string
	}{
		"lines":                            {[]string{"a\nb", "c\n\nd"}, []string{"a", "bc", "", "d"}},
		"carriage returns":                 {[]string{"1%\r2%\r", "\n3%\r\n", "\r\nend\r"}, []string{"1%", "2%", "3%", "", "end"}},
		"secret in two writes":             {[]string{"key=" + longSecret[:7], longSecret[7:] + "\n"}, []string{"key=***"}},
		"secret with colours in it":        {[]string{"key=" + longSecret[:20] + "\x1b[31m" + longSecret[20:] + "\n"}, []string{"key=***"}},
		"a line that is too long":          {[]string{long + "\nnext\n"}, []string{long[:hookLine-hookGram] + fmt.Sprintf(" (… the other %d bytes of this line are left out)", 100+hookGram), "next"}},
		"too long, a secret where it ends": {[]string{long[:hookLine-5], longSecret + "\n"}, []string{long[:hookLine-hookGram] + fmt.Sprintf(" (… the other %d bytes of this line are left out)", len(longSecret)-5+hookGram)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, linesOf(m, tt.pieces...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// However the output is cut into writes, the lines are the same.
func TestOutputCutAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([a-z]{0,4}(\r|\n|\r\n|\x1b\[1m|wJalrXUtnFEMI/K7MDENG\+bPxRfiCYEXAMPLEKEY)){0,12}`).Draw(t, "text")
		m := newHookMask([]string{longSecret})
		var pieces []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if diff := cmp.Diff(linesOf(m, text), linesOf(m, pieces...)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestLastLines(t *testing.T) {
	o := &hookOutput{mask: newHookMask(nil)}
	for i := range 15 {
		o.feed([]byte(fmt.Sprintf("line %d\n\n", i)))
	}
	o.feed([]byte(strings.Repeat("w", 1000) + "\n"))
	if got := o.lines(); len(got) != hookLast || got[0] != "line 6" || len([]rune(got[9])) != hookLastWidth {
		t.Errorf("%q", got)
	}
	if got := o.latest(); !strings.HasSuffix(got, "…") || len([]rune(got)) != 120 {
		t.Errorf("%q", got)
	}
}

// The log keeps its beginning and its end, is never much larger than both, and says how
// much is missing.
func TestLogIsBounded(t *testing.T) {
	const head, tail = 1000, 2000
	path := filepath.Join(t.TempDir(), "logs", "provision.log")
	l, err := openHookLog(path, head, tail)
	if err != nil {
		t.Fatal(err)
	}
	total := 5000
	for i := range total {
		l.write(fmt.Sprintf("line %d", i))
		if l.size > head+2*tail+200 {
			t.Fatalf("grew to %d", l.size)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	checkLog(t, path, total)

	// A second attempt appends; a log that is over the bound is cut first.
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	before := readText(t, path)
	l, err = openHookLog(path, head, tail)
	if err != nil {
		t.Fatal(err)
	}
	l.write("again")
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if got := readText(t, path); got != before+"again\n" {
		t.Errorf("the second attempt left %q", got)
	}
	if info, err = os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	l, err = openHookLog(path, 10, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	got := readText(t, path)
	if !strings.HasPrefix(got, "== ") || !strings.HasSuffix(got, "\nagain\n") || len(got) > 200 {
		t.Errorf("a large log became %q", got)
	}
}

// checkLog wants line 0 to line total-1 with one gap, whose size it says.
func checkLog(t *testing.T, path string, total int) {
	t.Helper()
	next, gaps := 0, 0
	for _, line := range strings.Split(strings.TrimSuffix(readText(t, path), "\n"), "\n") {
		var n, bytes int
		if _, err := fmt.Sscanf(line, "== %d lines (%d bytes) are left out here ==", &n, &bytes); err == nil {
			next += n
			gaps++
			continue
		}
		if line != fmt.Sprintf("line %d", next) {
			t.Fatalf("got %q, want line %d", line, next)
		}
		next++
	}
	if gaps != 1 || next != total {
		t.Errorf("%d gaps, %d lines", gaps, next)
	}
}

// A log that cannot be written any more says so at its end and harms nothing before.
func TestLogThatFails(t *testing.T) {
	l, err := openHookLog(filepath.Join(t.TempDir(), "log"), 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	l.write("one")
	_ = l.f.Close()
	l.write("two")
	l.write("three")
	if err := l.close(); err == nil {
		t.Error("no error")
	}
}
