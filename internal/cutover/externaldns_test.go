package cutover

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
)

func TestParseOwner(t *testing.T) {
	tests := []struct {
		value string
		ours  bool
		owner string
		what  string
	}{
		{`"heritage=external-dns,external-dns/owner=shop-blue,external-dns/resource=ingress/shop/web"`, true, "shop-blue", "ingress/shop/web"},
		{`"heritage=external-dns,external-dns/owner=" "shop-blue"`, true, "shop-blue", ""},
		{`"heritage=external-dns,external-dns/owner=a\"b\040c"`, true, `a"b c`, ""},
		{`heritage=external-dns,external-dns/owner=bare`, true, "bare", ""},
		{`"v=spf1 include:example.com -all"`, false, "", ""},
		{`"heritage=somebody-else,external-dns/owner=x"`, false, "x", ""},
		{``, false, "", ""},
	}
	for _, tt := range tests {
		o, ours := parseOwner(tt.value)
		if ours != tt.ours || o.owner != tt.owner || o.resource != tt.what {
			t.Errorf("parseOwner(%s) = %+v, %t", tt.value, o, ours)
		}
	}
}

func FuzzParseOwner(f *testing.F) {
	f.Add(`"heritage=external-dns,external-dns/owner=shop"`)
	f.Add(`"\`)
	f.Add(`"a" "b\777"`)
	f.Fuzz(func(t *testing.T, s string) {
		o, ours := parseOwner(s)
		if ours && !strings.Contains(unquoteTXT(s), "external-dns") {
			t.Errorf("%q is taken for external-dns'", s)
		}
		if len(o.owner)+len(o.resource) > len(s) {
			t.Errorf("%q grew: %+v", s, o)
		}
		if quoted, _ := parseOwner(`"heritage=external-dns,external-dns/owner=x,` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(s) + `"`); quoted.owner == "" && !strings.Contains(s, "external-dns/owner") {
			t.Errorf("%q hides the owner in front of it", s)
		}
	})
}

func TestWhoseRegistryRecord(t *testing.T) {
	tests := []struct {
		name string
		txt  string
		// records are those of the zone beside the one that is asked for.
		records []string
		record  string
		owns    bool
	}{
		{"same name", "api.shop.example.com", nil, "api.shop.example.com", true},
		{"type in front", "a-api.shop.example.com", nil, "api.shop.example.com", true},
		{"aaaa", "aaaa-api.shop.example.com", nil, "api.shop.example.com", true},
		{"alias", "cname-api.shop.example.com", nil, "api.shop.example.com", true},
		{"prefix", "extdns-api.shop.example.com", nil, "api.shop.example.com", true},
		{"prefix with type", "extdns-cname-api.shop.example.com", nil, "api.shop.example.com", true},
		{"prefix with a dot", "extdns.api.shop.example.com", nil, "api.shop.example.com", true},
		{"suffix", "api-extdns.shop.example.com", nil, "api.shop.example.com", true},
		{"suffix with type", "cname-api-extdns.shop.example.com", nil, "api.shop.example.com", true},
		{"another record's", "web.shop.example.com", []string{"web.shop.example.com"}, "api.shop.example.com", false},
		{"another record's, which ends alike", "myapi.shop.example.com", []string{"myapi.shop.example.com"}, "api.shop.example.com", false},
		{"another record's with type, which ends alike", "a-myapi.shop.example.com", []string{"myapi.shop.example.com"}, "api.shop.example.com", false},
		{"another record's, which begins alike", "apidocs.shop.example.com", []string{"apidocs.shop.example.com"}, "api.shop.example.com", false},
		{"another zone part", "api.other.example.com", nil, "api.shop.example.com", false},
		{"wildcard", "a-*.shop.example.com", nil, "*.shop.example.com", true},
		{"wildcard replaced", "a-any.shop.example.com", nil, "*.shop.example.com", true},
		{"wildcard beside another record", "a-w.shop.example.com", []string{"w.shop.example.com"}, "*.shop.example.com", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r registry
			for _, name := range append(tt.records, tt.record) {
				r.see(name, r53types.ResourceRecordSet{Type: r53types.RRTypeA})
			}
			r.see(tt.txt, r53types.ResourceRecordSet{Type: r53types.RRTypeTxt, ResourceRecords: []r53types.ResourceRecord{{
				Value: aws.String(`"heritage=external-dns,external-dns/owner=x"`)}}})
			if got := len(r.owners(tt.record)) == 1; got != tt.owns {
				t.Errorf("TXT %s speaks about %s: %t, want %t", tt.txt, tt.record, got, tt.owns)
			}
		})
	}
}
