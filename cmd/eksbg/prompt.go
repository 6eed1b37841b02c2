package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/eksbg/eksbg/internal/ui/text"
)

// ask puts a question and gives true for a plain yes. Anything else is a no, the end of
// the input and a terminal that is gone included; a cancelled context is its cause.
func ask(ctx context.Context, s streams, question string) (bool, error) {
	line, err := answer(ctx, s, question)
	if errors.Is(err, errNoAnswer) {
		return false, nil
	}
	return line == "yes", err
}

// errNoAnswer is the end of the input in place of a line.
var errNoAnswer = errors.New("nobody answers")

// answer puts a question and gives the line that is answered, without its blanks.
func answer(ctx context.Context, s streams, question string) (string, error) {
	var b strings.Builder
	text.Wrap(&b, "", "", clean(question))
	question = "\n" + strings.TrimSuffix(b.String(), "\n") + " "
	entered := false
	if p, ok := s.err.(*patient); ok {
		p.hold(question)
		defer func() { p.release(entered) }()
	} else {
		_, _ = io.WriteString(s.err, question) // a terminal that is gone gives no answer
	}
	type read struct {
		line string
		err  error
	}
	answered := make(chan read, 1)
	go func() { // ends with the answer, the end of the input, or the process
		line, err := bufio.NewReader(s.in).ReadString('\n')
		answered <- read{strings.TrimSpace(line), err}
	}()
	select {
	case r := <-answered:
		entered = r.err == nil
		if r.err != nil && r.line == "" {
			return "", errNoAnswer
		}
		return r.line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// patient is the terminal of a command that asks: what is written while a question stands
// there waits for the answer, so that nothing is written over the question.
type patient struct {
	mu   sync.Mutex
	w    io.Writer
	asks bool
	kept bytes.Buffer
}

// Write writes, or keeps.
func (p *patient) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asks {
		return p.kept.Write(b)
	}
	return p.w.Write(b)
}

func (p *patient) hold(question string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.w, question) // a terminal that is gone gives no answer
	p.asks = true
}

// release writes what was kept; entered tells whether the question's line is over.
func (p *patient) release(entered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks = false
	if !entered && p.kept.Len() > 0 && p.kept.Bytes()[0] != '\n' {
		_, _ = io.WriteString(p.w, "\n")
	}
	_, _ = p.kept.WriteTo(p.w) // as above
}
