package planfile_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/planfile"
)

var update = flag.Bool("update", false, "rewrite the schema and the golden files")

const schemaFile = "../../docs/schema/v1/plan.json"

func TestSchemaIsCommitted(t *testing.T) {
	have, err := planfile.Schema()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, schemaFile, have)
}

func golden(t *testing.T, file string, have []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (make it with -update)", err)
	}
	if diff := cmp.Diff(string(want), string(have)); diff != "" {
		t.Errorf("%s is not up to date (-update rewrites it):\n%s", file, diff)
	}
}
