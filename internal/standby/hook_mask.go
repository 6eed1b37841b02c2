package standby

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// hookMasked stands for a secret.
const hookMasked = "***"

// hookGram is how many bytes of a longer secret in a row are taken for it: tools cut
// secrets at the width of a line, base64 wraps at 76 columns.
const hookGram = 12

// hookMask takes secrets out of text, in the forms that tools write them in: as they
// are, escaped for URLs or JSON, and in base64 with whatever else before and behind.
type hookMask struct {
	// grams are all the pieces of hookGram bytes of the longer secrets, whole the shorter
	// secrets themselves, the longest first.
	grams map[string]struct{}
	whole []string
}

func newHookMask(secrets []string) *hookMask {
	m := &hookMask{grams: map[string]struct{}{}}
	for _, s := range secrets {
		// Output is masked line by line, so a private key is masked by its lines.
		lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
		for _, line := range lines {
			if len(lines) == 1 || len(line) >= hookLeast {
				m.add(line)
			}
		}
		if len(lines) > 1 {
			m.encoded(s)
		}
	}
	slices.SortFunc(m.whole, func(a, b string) int { return len(b) - len(a) })
	m.whole = slices.Compact(m.whole)
	return m
}

// add takes in a secret of one line.
func (m *hookMask) add(secret string) {
	m.form(secret)
	m.form(url.QueryEscape(secret))
	m.form(url.PathEscape(secret))
	if quoted, err := json.Marshal(secret); err == nil {
		m.form(string(quoted[1 : len(quoted)-1]))
	}
	m.encoded(secret)
}

// encoded takes in what base64 makes of a secret. Three bytes become four characters,
// so there are three ways to write it, by what is in front of it; the characters at its
// ends hold bits of the neighbours and are left out.
func (m *hookMask) encoded(secret string) {
	if len(secret) < hookLeast {
		return
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		m.form(enc.EncodeToString([]byte(secret)))
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), secret...))
			from, to := (before*8+5)/6, (before+len(secret))*8/6
			if to-from >= hookLeast {
				m.form(text[from:to])
			}
		}
	}
}

func (m *hookMask) form(s string) {
	s = hookPlain(s)
	if len(s) >= hookGram {
		for i := 0; i+hookGram <= len(s); i++ {
			m.grams[s[i:i+hookGram]] = struct{}{}
		}
	} else if strings.TrimSpace(s) != "" {
		m.whole = append(m.whole, s)
	}
}

// mask gives a line without the secrets in it.
func (m *hookMask) mask(line string) string {
	covered := make([]bool, len(line))
	any := false
	cover := func(from, to int) {
		any = true
		for i := from; i < to; i++ {
			covered[i] = true
		}
	}
	for i := 0; i+hookGram <= len(line); i++ {
		if _, ok := m.grams[line[i:i+hookGram]]; ok {
			cover(i, i+hookGram)
		}
	}
	for _, s := range m.whole {
		for from := 0; ; {
			at := strings.Index(line[from:], s)
			if at < 0 {
				break
			}
			cover(from+at, from+at+len(s))
			from += at + 1
		}
	}
	if !any {
		return line
	}
	var b strings.Builder
	for i := range len(line) {
		switch {
		case !covered[i]:
			b.WriteByte(line[i])
		case i == 0 || !covered[i-1]:
			b.WriteString(hookMasked)
		}
	}
	return strings.ToValidUTF8(b.String(), "")
}

// all masks each of the texts, of which it makes one line each.
func (m *hookMask) all(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = m.mask(hookPlain(strings.ReplaceAll(t, "\n", " ")))
	}
	return out
}

// hookLeast is the least length of a value that is taken for a secret by the name it
// has: shorter ones are switches and numbers.
const hookLeast = 4

// hookSecrets are the values of the variables (NAME=value) and arguments that look like
// credentials by their names, and the passwords in URLs.
func hookSecrets(environ, argv []string) []string {
	var out []string
	take := func(name, value string) {
		if user, pass := urlLogin(value); pass != "" {
			out = append(out, pass, url.QueryEscape(pass))
		} else if len(user) >= hookGram {
			out = append(out, user)
		}
		if secretName(name) && (strings.HasPrefix(name, "AWS_") || tellsSecret(value)) {
			out = append(out, value)
		}
	}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && value != "" {
			take(name, value)
		}
	}
	for i, arg := range argv {
		// A script for sh -c is one argument.
		for _, word := range strings.Fields(arg) {
			name, value, ok := strings.Cut(word, "=")
			if value = strings.Trim(value, `"';`); ok && value != "" {
				take(name, value)
			} else if !ok {
				take("", word)
			}
		}
		if strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") && i+1 < len(argv) && secretName(arg) && !strings.HasPrefix(argv[i+1], "-") {
			take(arg, argv[i+1])
		}
	}
	return out
}

// urlLogin gives the user and the password in a URL.
func urlLogin(value string) (user, pass string) {
	if !strings.Contains(value, "://") || !strings.Contains(value, "@") {
		return "", ""
	}
	u, err := url.Parse(value)
	if err != nil || u.User == nil {
		return "", ""
	}
	pass, _ = u.User.Password()
	return u.User.Username(), pass
}

// tellsSecret tells a secret from a switch or a number that is named like one.
func tellsSecret(value string) bool {
	switch strings.ToLower(value) {
	case "true", "false", "none", "null", "auto", "enabled", "disabled", "required", "optional":
		return false
	}
	digits := strings.TrimFunc(value, unicode.IsDigit) == ""
	return len(value) >= hookLeast && (!digits || len(value) > 5)
}

// secretName tells whether a variable or an option has a name that credentials have. A
// name that ends in FILE or the like says where the secret is and not what it is.
func secretName(name string) bool {
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	joined := strings.Join(words, "")
	if len(words) == 0 || joined == "PWD" || joined == "OLDPWD" || joined == "GOOGLEAPPLICATIONCREDENTIALS" {
		return false
	}
	last := words[len(words)-1]
	switch last {
	case "FILE", "PATH", "DIR", "SOCK", "URL", "URI", "NAME", "ARN", "TYPE", "TTL", "LENGTH", "DURATION", "EXPIRATION":
		return false
	}
	for _, part := range []string{"SECRET", "TOKEN", "PASSW", "PASSPHRASE", "CREDENTIAL", "APIKEY", "ACCESSKEY", "PRIVATEKEY"} {
		if strings.Contains(joined, part) {
			return true
		}
	}
	return last == "KEY" || slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"PASS", "PWD", "AUTH", "JWT", "BEARER", "COOKIE", "PSK"}, w)
	})
}
