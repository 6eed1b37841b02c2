package cutover

import (
	"strings"
	"testing"
)

func TestCanonicalName(t *testing.T) {
	for in, want := range map[string]string{
		"API.Shop.Example.COM.":    "api.shop.example.com",
		"api.shop.example.com":     "api.shop.example.com",
		`\052.shop.example.com.`:   "*.shop.example.com",
		"*.shop.example.com":       "*.shop.example.com",
		`a\040b.example.com`:       `a\040b.example.com`,
		"a b.example.com":          `a\040b.example.com`,
		`a\056b.example.com`:       `a\056b.example.com`,
		`\101.example.com`:         "a.example.com",
		"_dmarc.example.com":       "_dmarc.example.com",
		"":                         "",
		".":                        "",
		`trailing\05`:              `trailing\13405`,
		"xn--bcher-kva.example.ch": "xn--bcher-kva.example.ch",
	} {
		if got := canonicalName(in); got != want {
			t.Errorf("canonicalName(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzCanonicalName(f *testing.F) {
	for _, s := range []string{"api.shop.example.com.", `\052.a.`, `\\`, `\400`, "..", "\x00", `\056.`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := canonicalName(s)
		if again := canonicalName(got); again != got {
			t.Errorf("canonicalName(%q) = %q, and of that %q", s, got, again)
		}
		if got != strings.ToLower(got) || strings.HasSuffix(got, ".") {
			t.Errorf("canonicalName(%q) = %q is not canonical", s, got)
		}
		for i := 0; i < len(got); i++ {
			if got[i] < 0x21 || got[i] > 0x7e {
				t.Errorf("canonicalName(%q) = %q holds octet %d", s, got, got[i])
			}
		}
		if !sameName(s, got) {
			t.Errorf("%q is not the same name as its canonical form %q", s, got)
		}
	})
}

func TestCovers(t *testing.T) {
	tests := []struct {
		record, host string
		want         bool
	}{
		{"api.example.com", "api.example.com", true},
		{"api.example.com", "xapi.example.com", false},
		{"*.example.com", "api.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "badexample.com", false},
	}
	for _, tt := range tests {
		if got := covers(tt.record, tt.host); got != tt.want {
			t.Errorf("covers(%q, %q) = %t", tt.record, tt.host, got)
		}
	}
}
