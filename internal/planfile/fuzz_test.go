package planfile_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/eksbg/eksbg/internal/planfile"
)

// FuzzParse: any text gives either a file that Parse would take again or a mistake at a
// place in it; never a panic, and never a control character in a message.
func FuzzParse(f *testing.F) {
	base := whole(f)
	f.Add(base)
	for _, m := range mistakes {
		f.Add(strings.NewReplacer(m.edits...).Replace(base))
	}
	f.Add("a: &a [*a, *a]\nb: &b {<<: *b}\n")
	f.Add("? [a]\n: b\n---\n!!binary x\n")
	f.Fuzz(func(t *testing.T, content string) {
		file, err := planfile.Parse("fuzz.yaml", []byte(content))
		if err == nil {
			if file.Name == "" || file.Sum == "" || len(file.Traffic) == 0 {
				t.Errorf("accepted without %+v", file)
			}
			return
		}
		var all planfile.Problems
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("error without a place: %v", err)
		}
		lines := strings.Count(content, "\n") + 1
		for _, e := range all {
			if e.Line < 1 || e.Line > lines || e.Column < 1 {
				t.Errorf("%d:%d is not in the file: %v", e.Line, e.Column, e)
			}
			if i := strings.IndexFunc(strings.ReplaceAll(e.Message+e.Excerpt, "\n", ""), unicode.IsControl); i >= 0 {
				t.Errorf("control character in %q", e.Message+e.Excerpt)
			}
		}
	})
}
