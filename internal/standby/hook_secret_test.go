package standby

import (
	"encoding/base64"
	"net/url"
	"os"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/state"
)

// leaks lists the secrets, or twelve bytes in a row of them, plain or in base64, that
// are in a text.
func leaks(text string, secrets ...string) []string {
	var out []string
	for _, s := range secrets {
		forms := []string{s, url.QueryEscape(s)}
		for _, before := range []string{"", "u", "u:"} {
			enc := base64.RawStdEncoding.EncodeToString([]byte(before + s))
			forms = append(forms, enc[4:len(enc)-2]) // without what the neighbours have a part in
		}
		for _, f := range forms {
			n := min(len(f), 12)
			for i := 0; i+n <= len(f); i++ {
				if strings.Contains(text, f[i:i+n]) {
					out = append(out, f[i:i+n])
				}
			}
		}
	}
	return out
}

// Whatever way a hook and its check write the secrets that they were given, and however
// they end: they are in no record, not in the log, shown to nobody and in no error.
func TestSecretsAreNowhere(t *testing.T) {
	const (
		key      = "AKIAIOSFODNN7EXAMPLE"
		secret   = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
		password = "open-Sesame-2026"
		listed   = "only-the-caller-knows-it"
	)
	token := "IQoJb3JpZ2luX2Vj" + strings.Repeat("FwoGZXIvYXdzEBYaDKtY", 30)
	script := `
printf '%s' "$AWS_SECRET_ACCESS_KEY" | cut -c1-15 | tr -d '\n'; sleep 0; printf '%s\n' "$AWS_SECRET_ACCESS_KEY" | cut -c16-
echo "key $AWS_ACCESS_KEY_ID" >&2
echo "$AWS_SESSION_TOKEN"
printf '%s' "$AWS_SESSION_TOKEN" | base64
printf '%s' "u:$AWS_SECRET_ACCESS_KEY" | base64
printf '\033[1m%s\033[0m%s\n' "wJalrXUtnFEMI/K7MDE" "NG/bPxRfiCYEXAMPLEKEY"
env
echo "Error: invalid password ${2#password=} and ` + listed + `"
exit "$EXIT"`
	all := []string{key, secret, token, password, listed}
	for name, exit := range map[string]string{"good": "0", "failed": "3"} {
		t.Run(name, func(t *testing.T) {
			b := newHookBench(t, "sh", "-c", script, "apply", "-var", "password="+password)
			plan := &state.Plan{Run: "run-1", Name: "shop", Steps: []state.StepSpec{hookSpec}}
			j, err := state.Create(t.Context(), journalIn(b.home), plan, state.Who{}, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })
			b.deps.History, b.deps.Secrets = j, []string{listed}
			b.deps.Environ = append(b.deps.Environ, "AWS_ACCESS_KEY_ID="+key, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_SESSION_TOKEN="+token)
			b.deps.Hook.Env["EXIT"] = exit
			b.deps.Hook.Check = []string{"sh", "-c", `test -e "$EKSBG_LOG" || exit 2; ` + script[:strings.LastIndex(script, "exit")] + `exit 1`, "check", "--token", password}
			errs := ""
			for range 2 { // the second one asks
				if err := b.hook().Act(t.Context(), j.Recorder(hookSpec.ID)); err != nil {
					stop := b.stop(err)
					errs += err.Error() + stop.Why + stop.Cure
				}
			}
			obs, err := b.hook().Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for where, text := range map[string]string{"the error": errs, "the observation": obs.Reason + obs.Cure, "what is shown": strings.Join(b.said, "\n"),
				"the log": b.log(), "the journal": readText(t, journalIn(b.home))} {
				if got := leaks(text, all...); len(got) > 0 {
					t.Errorf("%s has %q:\n%s", where, got, text)
				}
			}
			if errs == "" || !strings.Contains(b.log(), "Error: invalid password *** and ***") || !strings.Contains(errs, "Error: invalid password *** and ***") {
				t.Errorf("%s\n%s", errs, b.log())
			}
			if info, err := os.Stat(b.deps.Log); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info, err)
			}
		})
	}
}
