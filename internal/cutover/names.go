package cutover

import (
	"fmt"
	"strings"
)

// canonicalName brings a DNS name to the one form in which names are compared:
// lower case, no trailing dot, an asterisk as itself, every other octet that is not
// a letter, digit, hyphen, underscore or dot as \ooo. Route 53 states names with a
// trailing dot and escapes with three octal digits, the asterisk of a wildcard as
// \052 (Developer Guide, "DNS domain name format").
func canonicalName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '\\' && i+3 < len(name) && octal(name[i+1:i+4]) {
			v := (int(name[i+1]-'0') << 6) | (int(name[i+2]-'0') << 3) | int(name[i+3]-'0')
			if v <= 0xff {
				writeOctet(&b, byte(v), true)
				i += 3
				continue
			}
		}
		writeOctet(&b, c, false)
	}
	return strings.TrimRight(b.String(), ".")
}

// writeOctet writes one octet; a dot that was escaped is part of a label and stays so.
func writeOctet(b *strings.Builder, c byte, escaped bool) {
	switch {
	case c >= 'A' && c <= 'Z':
		b.WriteByte(c + 'a' - 'A')
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '*', c == '.' && !escaped:
		b.WriteByte(c)
	default:
		fmt.Fprintf(b, `\%03o`, c)
	}
}

func octal(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '7' {
			return false
		}
	}
	return true
}

// sameName compares two DNS names.
func sameName(a, b string) bool { return canonicalName(a) == canonicalName(b) }

// within tells whether a name is the zone itself or below it; both are canonical.
func within(name, zone string) bool {
	return zone == "" || name == zone || strings.HasSuffix(name, "."+zone)
}

// cutLabel splits the first label off a canonical name.
func cutLabel(name string) (label, rest string) {
	label, rest, _ = strings.Cut(name, ".")
	return label, rest
}

// covers tells whether a record's canonical name answers for a host: the same name, or
// a wildcard above it (RFC 4592: any number of labels).
func covers(record, host string) bool {
	if record == host {
		return true
	}
	parent, ok := strings.CutPrefix(record, "*.")
	return ok && strings.HasSuffix(host, "."+parent)
}
