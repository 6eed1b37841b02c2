package run

import (
	"testing"

	"github.com/eksbg/eksbg/internal/state"
)

func TestOneLine(t *testing.T) {
	stop := &state.Stop{Code: state.ExitResumable, Why: "nothing can begin for 1m0s:\n  shop/Deployment/a: no room\n  shop/Deployment/b: no room"}
	if got, want := oneLine(stop), "nothing can begin for 1m0s: shop/Deployment/a: no room; shop/Deployment/b: no room"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
