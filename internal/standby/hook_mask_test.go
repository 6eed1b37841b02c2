package standby

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{
		"AWS_SECRET_ACCESS_KEY": true, "AWS_SESSION_TOKEN": true, "AWS_ACCESS_KEY_ID": true, "AWS_CONTAINER_AUTHORIZATION_TOKEN": true,
		"GITHUB_TOKEN": true, "PGPASSWORD": true, "MYSQL_PWD": true, "DD_API_KEY": true, "TF_VAR_db_password": true, "--password": true,
		"-dbPassword": true, "VAULT_SECRET_ID": true, "BASIC_AUTH": true, "SENTRY_KEY": true, "AZURE_CREDENTIALS": true,
		"PATH": false, "PWD": false, "OLDPWD": false, "HOME": false, "SSH_AUTH_SOCK": false, "AWS_WEB_IDENTITY_TOKEN_FILE": false,
		"AWS_SHARED_CREDENTIALS_FILE": false, "AWS_CONTAINER_CREDENTIALS_FULL_URI": false, "GOOGLE_APPLICATION_CREDENTIALS": false,
		"AWS_REGION": false, "AWS_PROFILE": false, "AUTHOR": false, "SECRET_NAME": false, "MONKEY": false, "": false,
	} {
		if got := secretName(name); got != want {
			t.Errorf("secretName(%q) = %t", name, got)
		}
	}
}

func TestHookSecrets(t *testing.T) {
	environ := []string{"PATH=/bin", "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SESSION_TOKEN=", "USE_TOKEN=true", "TOKEN_COUNT=17", "AWS_ACCESS_KEY_ID=key",
		"DATABASE_URL=postgres://shop:s3cr3t%2F@db/shop", "CLONE=https://ghp_0123456789abcdef@github.com/x", "ODD", "DB_PASSWORD=hunter22"}
	argv := []string{"sh", "-c", `export API_TOKEN="tok-123456"; run --quiet`, "-var", "password=openSesame", "--auth", "basic-abc", "--secret", "--next", "x://u:argpass@h"}
	want := []string{"wJalrXUtnFEMI/K7MDENG", "key", "s3cr3t/", "s3cr3t%2F", "ghp_0123456789abcdef", "hunter22", "tok-123456", "openSesame", "basic-abc", "argpass", "argpass"}
	if diff := cmp.Diff(want, hookSecrets(environ, argv)); diff != "" {
		t.Error(diff)
	}
}

const (
	longSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	pem        = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7VJTU\n-----END KEY-----"
)

func TestMask(t *testing.T) {
	quoted, _ := json.Marshal(`pa"ss\word`)
	m := newHookMask([]string{longSecret, "hunter22", "ab", pem, `pa"ss\word`, ""})
	wrapped := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("z", 30) + longSecret))
	for in, want := range map[string]string{
		"nothing here":                               "nothing here",
		"key " + longSecret + ", done":               "key ***, done",
		longSecret + longSecret:                      "***",
		"the first half wJalrXUtnFEMI/K7MD is known": "the first half *** is known",
		"url " + url.QueryEscape(longSecret):         "url ***",
		"hunter22hunter22 hunter2":                   "*** hunter2",
		"ab":                                         "***",
		"json " + string(quoted):                     `json "***"`,
		"AASCBKcwggSjAgEAAoIBAQC7VJTU":               "***",
		"wrapped " + wrapped[56:76]:                  "wrapped ***",
		"é" + longSecret + "é":                       "é***é",
		"64 " + base64.StdEncoding.EncodeToString([]byte("hunter22")):                "64 ***=",
		"64 " + base64.RawURLEncoding.EncodeToString([]byte("u:"+longSecret)) + " .": "64 dTp*** .",
	} {
		if got := m.mask(in); got != want {
			t.Errorf("mask(%q) = %q, want %q", in, got, want)
		}
	}
}

// Whatever a secret is and wherever it stands, as it is or in base64 with anything
// around it, no piece of twelve bytes of it is left.
func TestMaskProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9+/=_.~-]{12,80}`).Draw(t, "secret")
		before := rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "before")
		after := rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "after")
		m := newHookMask([]string{secret})
		if got := m.mask(before + secret + after); strings.Contains(got, secret) {
			t.Fatalf("%q", got)
		}
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
			text := enc.EncodeToString([]byte(before + secret + after))
			got := m.mask(text)
			// At most a character at each end of the secret may stay.
			if left := len(text) - len(strings.ReplaceAll(got, hookMasked, "")); left < len(secret)*8/6-3 {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
