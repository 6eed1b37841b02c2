package planfile

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Error is one mistake in a plan file, at its place.
type Error struct {
	// File is the name of the file as it was given; Line and Column count from 1.
	File         string
	Line, Column int
	// Message says what is wrong and what would be right.
	Message string
	// Excerpt shows the line with the one before it, and a caret under the column.
	Excerpt string
}

// Error gives file:line:column, the message, and below it the excerpt.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
	if e.Excerpt != "" {
		s += "\n\n" + e.Excerpt
	}
	return s
}

// Problems is every mistake that was found, in the order of the file. errors.As finds
// the first *Error in it.
type Problems []*Error

// maxShown bounds how many mistakes are printed.
const maxShown = 10

// Error prints the mistakes, each with its excerpt.
func (p Problems) Error() string {
	var out []string
	for i, e := range p {
		if i == maxShown {
			out = append(out, fmt.Sprintf("and %d more", len(p)-maxShown))
			break
		}
		out = append(out, e.Error())
	}
	return strings.Join(out, "\n\n")
}

// Unwrap gives the single mistakes.
func (p Problems) Unwrap() []error {
	out := make([]error, len(p))
	for i, e := range p {
		out[i] = e
	}
	return out
}

// source is the text that mistakes are shown in.
type source struct {
	name     string
	lines    []string
	problems Problems
}

func newSource(name string, content []byte) *source {
	return &source{name: name, lines: strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")}
}

// maxProblems bounds how many mistakes are noted in a file that is none at all.
const maxProblems = 100

// bad notes a mistake. Positions out of the file, which an empty file has only, are
// moved into it.
func (s *source) bad(line, column int, format string, args ...any) {
	if len(s.problems) == maxProblems {
		return
	}
	line = min(max(line, 1), len(s.lines))
	column = max(column, 1)
	s.problems = append(s.problems, &Error{
		File: s.name, Line: line, Column: column,
		Message: printable(fmt.Sprintf(format, args...)),
		Excerpt: s.excerpt(line, column),
	})
}

// err returns the mistakes in the order of the file, or nil.
func (s *source) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(s.problems, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return s.problems
}

// maxWidth is how much of a long line is shown, in characters.
const maxWidth = 100

func (s *source) excerpt(line, column int) string {
	width := len(fmt.Sprint(line))
	var b strings.Builder
	if line > 1 {
		show, _ := window(s.lines[line-2], 1)
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("  %*d | %s", width, line-1, show), " "))
	}
	show, at := window(s.lines[line-1], column)
	fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("> %*d | %s", width, line, show), " "))
	fmt.Fprintf(&b, "%*s", width+5+at, "^")
	return b.String()
}

// window cuts a long line around a column and returns where the column is then.
func window(line string, column int) (string, int) {
	r := []rune(printable(strings.TrimSuffix(line, "\r")))
	if len(r) <= maxWidth {
		return string(r), column
	}
	from := min(max(column-maxWidth/2, 0), len(r)-maxWidth)
	show := slices.Clone(r[from : from+maxWidth])
	if from > 0 {
		copy(show, []rune("..."))
	}
	if from+maxWidth < len(r) {
		copy(show[maxWidth-3:], []rune("..."))
	}
	return string(show), column - from
}

// printable keeps the width of a text and takes out what could drive a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return '?'
		}
		return r
	}, s)
}

// near returns the candidate that word was probably meant to be, or "".
func near(word string, candidates []string) string {
	best, least := "", 2+min(len(word)/4, 2)
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours
// that lead from a to b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	d := make([][]int, len(x)+1)
	for i := range d {
		d[i] = make([]int, len(y)+1)
		d[i][0] = i
	}
	for k := range d[0] {
		d[0][k] = k
	}
	for i := 1; i <= len(x); i++ {
		for k := 1; k <= len(y); k++ {
			cost := 1
			if x[i-1] == y[k-1] {
				cost = 0
			}
			d[i][k] = min(d[i-1][k]+1, d[i][k-1]+1, d[i-1][k-1]+cost)
			if i > 1 && k > 1 && x[i-1] == y[k-2] && x[i-2] == y[k-1] {
				d[i][k] = min(d[i][k], d[i-2][k-2]+1)
			}
		}
	}
	return d[len(x)][len(y)]
}

// meant is the end of a message about an unknown word.
func meant(word string, known []string) string {
	if n := near(word, known); n != "" {
		return "; did you mean " + n + "?"
	}
	return "; known are " + strings.Join(known, ", ")
}
