package planfile_test

import (
	"path/filepath"
	"testing"

	"github.com/eksbg/eksbg/internal/planfile"
)

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../plans/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if _, err := planfile.Load(file); err != nil {
			t.Errorf("%v", err)
		}
	}
}
