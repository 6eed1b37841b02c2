package planfile

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

// SchemaID is where editors find the schema of this version of the plan file.
const SchemaID = "https://eksbg.dev/schema/v1/plan.json"

// typesSource is this package's own source, whose comments describe the fields.
//
//go:embed planfile.go
var typesSource []byte

// Schema is the JSON Schema (2020-12) of a plan file, made from the types that Parse
// fills: two spaces deep, with a newline at the end.
func Schema() ([]byte, error) {
	comments, err := commentsOf(typesSource)
	if err != nil {
		return nil, fmt.Errorf("read the comments of the plan file's types: %w", err)
	}
	r := jsonschema.Reflector{
		Anonymous:      true,
		ExpandedStruct: true,
		Mapper:         scalarSchema,
		LookupComment: func(t reflect.Type, field string) string {
			if field == "" {
				return comments[t.Name()]
			}
			return comments[t.Name()+"."+field]
		},
	}
	s := r.Reflect(&File{})
	s.ID, s.Title = SchemaID, "eksbg plan file"
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return b.Bytes(), nil
}

// scalarSchema describes the types that read text of a form of their own.
func scalarSchema(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`, Examples: []any{"30s", "1h30m"}}
	case reflect.TypeFor[Date]():
		return &jsonschema.Schema{Type: "string", Format: "date", Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}$`}
	case reflect.TypeFor[Percent]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Type: "string", Pattern: percentForm.String()},
			{Type: "number", ExclusiveMinimum: "0", Maximum: "100"},
		}}
	}
	return nil
}

// commentsOf maps Type and Type.Field to their doc comments in one line each.
func commentsOf(source []byte) (map[string]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "planfile.go", source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	note := func(name string, doc *ast.CommentGroup) {
		if text := strings.Join(strings.Fields(doc.Text()), " "); text != "" {
			out[name] = text
		}
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			typ := spec.(*ast.TypeSpec)
			note(typ.Name.Name, gen.Doc)
			fields, ok := typ.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range fields.Fields.List {
				for _, name := range f.Names {
					note(typ.Name.Name+"."+name.Name, f.Doc)
				}
			}
		}
	}
	return out, nil
}
