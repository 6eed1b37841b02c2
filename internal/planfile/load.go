package planfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxSize bounds a plan file, in bytes; a real one has a few thousand.
const maxSize = 64 << 10

// Load reads and checks a plan file. The errors are those of the file system and
// Problems, which errors.As also gives as the first *Error.
func Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read plan file: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	content, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read plan file %s: %w", path, err)
	}
	return Parse(path, content)
}

// Parse reads and checks the content of a plan file; name is what messages call it.
// What is left out has its default in the result. Every mistake that can be told
// without looking at the world is in the error, a Problems.
func Parse(name string, content []byte) (*File, error) {
	text := bytes.TrimPrefix(content, []byte("\uFEFF"))
	s := newSource(name, text)
	if len(content) > maxSize {
		s.bad(1, 1, "a plan file has at most %d KiB", maxSize>>10)
		return nil, s.err()
	}
	for i, line := range s.lines {
		if !utf8.ValidString(line) {
			s.bad(i+1, 1, "the line is not UTF-8")
			return nil, s.err()
		}
	}
	body := s.parse(text)
	if body == nil {
		return nil, s.err()
	}
	d := &decoder{source: s, at: map[string]place{}, keys: map[string]place{}, anchors: map[string]ast.Node{}}
	f := &File{}
	d.collect(body)
	d.decode(body, reflect.ValueOf(f).Elem(), "")
	if len(s.problems) == 0 {
		(&validator{decoder: d, file: f}).check()
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	f.Path, f.Sum = name, hex.EncodeToString(sum[:])
	return f, nil
}

// parse gives the body of the only document; nil with the problem noted.
func (s *source) parse(content []byte) ast.Node {
	tree, err := parseYAML(content)
	if err != nil {
		var at *yaml.SyntaxError
		if errors.As(err, &at) && at.Token != nil && at.Token.Position != nil {
			s.bad(at.Token.Position.Line, at.Token.Position.Column, "this is no YAML: %s", at.Message)
		} else {
			s.bad(1, 1, "this is no YAML: %s", firstLine(err.Error()))
		}
		return nil
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if body != nil {
			p := placeOf(doc.Body)
			s.bad(p.line, p.column, "a second document begins here; a plan file is one")
			return nil
		}
		body = doc.Body
	}
	if _, comment := body.(*ast.CommentGroupNode); comment || body == nil {
		s.bad(1, 1, "the file is empty; a plan file begins with apiVersion: %s", APIVersion)
		return nil
	}
	return body
}

// parseYAML keeps a panic of the YAML parser, which text from outside may provoke,
// from ending the process.
func parseYAML(content []byte) (tree *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser gave up: %v", r)
		}
	}()
	tokens := lexer.Tokenize(string(content))
	if deep := tooDeep(tokens); deep != nil {
		return nil, &yaml.SyntaxError{Token: deep, Message: fmt.Sprintf("more than %d lists or mappings in one another", maxDepth)}
	}
	// Duplicate keys are told by decode, in the words of all other mistakes.
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// maxDepth bounds the nesting in one line, for which the parser takes quadratic time.
// Over lines the indentation bounds it.
const maxDepth = 50

func tooDeep(tokens token.Tokens) *token.Token {
	depth, entries, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			entries, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		if depth > maxDepth || entries > maxDepth {
			return t
		}
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
