package cutover

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
)

// owner is what a TXT record of external-dns' registry says.
type owner struct {
	owner, resource string
	// txt is the name of the TXT record, set its set identifier.
	txt, set string
}

func (o owner) forWhat() string {
	if o.resource == "" {
		return ""
	}
	return " for " + o.resource
}

// parseOwner reads the value of a TXT record as Route 53 states it: one or more quoted
// strings. external-dns writes "heritage=external-dns,external-dns/owner=ID,
// external-dns/resource=KIND/NAMESPACE/NAME" (its endpoint/labels.go).
func parseOwner(value string) (owner, bool) {
	var o owner
	heritage := false
	for _, label := range strings.Split(unquoteTXT(value), ",") {
		key, val, ok := strings.Cut(strings.TrimSpace(label), "=")
		if !ok {
			continue
		}
		switch key {
		case "heritage":
			heritage = heritage || val == "external-dns"
		case "external-dns/owner":
			o.owner = val
		case "external-dns/resource":
			o.resource = val
		}
	}
	return o, heritage
}

// unquoteTXT joins the quoted strings of a TXT value and resolves \" \\ and \ooo.
func unquoteTXT(value string) string {
	var b strings.Builder
	quoted := false
	bare := !strings.Contains(value, `"`)
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '\\' && i+3 < len(value) && octal(value[i+1:i+4]):
			if v, err := strconv.ParseUint(value[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
			}
		case c == '\\' && i+1 < len(value):
			b.WriteByte(value[i+1])
			i++
		case c == '"':
			quoted = !quoted
		case quoted || bare:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// registry collects the owners and the records of a part of a zone.
type registry struct {
	all []owner
	// records are the names that have a record of a type that external-dns writes.
	records map[string]bool
}

func (r *registry) see(name string, set r53types.ResourceRecordSet) {
	if r.records == nil {
		r.records = map[string]bool{}
	}
	if set.Type != r53types.RRTypeTxt {
		if name != "" {
			r.records[name] = true
		}
		return
	}
	for _, v := range set.ResourceRecords {
		o, ok := parseOwner(aws.ToString(v.Value))
		if !ok {
			continue
		}
		o.txt, o.set = name, aws.ToString(set.SetIdentifier)
		r.all = append(r.all, o)
	}
}

// owners gives those whose TXT record speaks about a record. The TXT record has the
// name of the record, or that with a prefix, a suffix of its first label, or the
// record's type in front (external-dns' registry/mapper). Since prefixes and suffixes
// are free text, a TXT name that fits several records speaks about the longest.
func (r *registry) owners(record string) []owner {
	var out []owner
	for _, o := range r.all {
		fits := registryExact(o.txt, record) || registryFits(o.txt, record) && !r.fitsBetter(o.txt, record)
		if fits && !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

func (r *registry) fitsBetter(txt, record string) bool {
	wildcard := strings.HasPrefix(record, "*.")
	for other := range r.records {
		if other != record && (wildcard || len(other) > len(record)) && registryFits(txt, other) {
			return true
		}
	}
	return false
}

// registryTypes are what external-dns puts in front of a name since v0.12, with a hyphen.
var registryTypes = []string{"a-", "aaaa-", "cname-", "ns-", "mx-", "srv-", "naptr-"}

// registryExact tells whether a TXT record has the record's own name, or that with its
// type in front: it speaks about it whatever else there is.
func registryExact(txt, record string) bool {
	if txt == record {
		return true
	}
	for _, t := range registryTypes {
		if txt == t+record {
			return true
		}
	}
	return false
}

// registryFits tells whether a TXT record of this name could speak about the record.
func registryFits(txt, record string) bool {
	if strings.HasSuffix(txt, record) {
		// The same name, or a prefix: --txt-prefix is put in front as it is, dots included.
		return true
	}
	label, parent := cutLabel(record)
	txtLabel, txtParent := cutLabel(txt)
	if parent != txtParent || label == "" {
		return false
	}
	if label == "*" {
		// --txt-wildcard-replacement stands in for the asterisk, and may be anything.
		return true
	}
	if strings.HasPrefix(txtLabel, label) {
		return true
	}
	for _, t := range registryTypes {
		if rest, ok := strings.CutPrefix(txtLabel, t); ok && strings.HasPrefix(rest, label) {
			return true
		}
	}
	return false
}
