package standby

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

const (
	// hookLine bounds a line of output, in bytes; more of it is left out, and that is said.
	hookLine = 64 << 10
	// hookLast is how many of the last lines are remembered, and hookLastWidth how many
	// characters of each.
	hookLast      = 10
	hookLastWidth = 300
)

// hookOutput takes what a command writes apart into lines, takes out of them what could
// drive a terminal and what is secret, and passes them on.
type hookOutput struct {
	mask *hookMask
	// sinks get every line, in order, from one goroutine at a time.
	sinks []func(string)

	partial []byte
	dropped int
	// returned: the last line was ended by a carriage return, to which a newline may belong.
	returned bool

	// taken counts the bytes.
	taken atomic.Int64
	mu    sync.Mutex
	last  []string
}

// take reads to the end of r, or until r is closed.
func (o *hookOutput) take(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		o.feed(buf[:n])
		o.taken.Add(int64(n))
		if err != nil {
			if len(o.partial) > 0 {
				o.line()
			}
			return
		}
	}
}

// feed takes in the next bytes. A lone carriage return ends a line too: progress bars
// are lines here.
func (o *hookOutput) feed(b []byte) {
	for _, c := range b {
		switch {
		case c == '\n' && o.returned && len(o.partial) == 0:
			o.returned = false
		case c == '\n', c == '\r' && len(o.partial) > 0:
			o.line()
			o.returned = c == '\r'
		case c == '\r':
		case len(o.partial) < hookLine:
			o.partial = append(o.partial, c)
		default:
			o.dropped++
		}
	}
}

// line passes on the line that is ended.
func (o *hookOutput) line() {
	text := o.mask.mask(hookPlain(string(o.partial)))
	if o.dropped > 0 {
		// What a secret begins with may be the end of what is left.
		text = strings.ToValidUTF8(text[:max(len(text)-hookGram, 0)], "")
		text += fmt.Sprintf(" (… the other %d bytes of this line are left out)", o.dropped+hookGram)
	}
	o.partial, o.dropped = o.partial[:0], 0
	o.remember(text)
	for _, sink := range o.sinks {
		sink(text)
	}
}

func (o *hookOutput) remember(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) == hookLast {
		o.last = append(o.last[:0], o.last[1:]...)
	}
	o.last = append(o.last, shorten(text, hookLastWidth))
}

// lines are the last lines so far that were not blank.
func (o *hookOutput) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.last...)
}

// latest is the last line so far in a few words; "" for none.
func (o *hookOutput) latest() string {
	if lines := o.lines(); len(lines) > 0 {
		return strings.TrimSpace(shorten(lines[len(lines)-1], 120))
	}
	return ""
}

func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// hookPlain takes out of one line what drives a terminal: escape sequences whole, other
// control characters and invisible ones. Tabs become spaces.
func hookPlain(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escapeLen(s[i:])
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '\t':
			b.WriteString("    ")
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapeLen is the length of the escape sequence that s begins with (ECMA-48: CSI and
// the strings that end with ST; xterm ends them with BEL too). One that does not end is
// its two first bytes only, so that it cannot hide the rest of a line.
func escapeLen(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x7e {
				break
			}
		}
	case ']', 'P', 'X', '^', '_':
		for i := 2; i < len(s); i++ {
			switch {
			case s[i] == 0x07:
				return i + 1
			case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\':
				return i + 2
			}
		}
	default:
		i := 1
		for i < len(s) && s[i] >= 0x20 && s[i] <= 0x2f {
			i++
		}
		if i < len(s) && s[i] < 0x7f {
			i++
		}
		return i
	}
	return 2
}
