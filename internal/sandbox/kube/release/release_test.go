package release_test

import (
	"regexp"
	"testing"

	"github.com/eksbg/eksbg/internal/sandbox/kube/release"
)

func TestVersions(t *testing.T) {
	form := regexp.MustCompile(`^v1\.\d+\.\d+-eks-[0-9a-f]{7}$`)
	for _, minor := range []string{"1.21", "1.25", "1.31", "1.34", "1.99"} {
		for _, v := range []string{release.GitVersion(minor), release.Kubelet(minor), release.Info(minor).GitVersion} {
			if !form.MatchString(v) || release.Minor(v) != minor {
				t.Errorf("%s is spelled %s, of minor %s", minor, v, release.Minor(v))
			}
		}
		if i := release.Info(minor); i.Major+"."+i.Minor != minor || len(i.GitCommit) != 40 {
			t.Errorf("version of %s: %+v", minor, i)
		}
	}
	for v, want := range map[string]string{"v1.19.16-eks-6ae7ca2": "1.19", "1.30": "1.30", "": "", "v1": "v1", "v1.x.2": "v1.x.2"} {
		if got := release.Minor(v); got != want {
			t.Errorf("minor of %q is %q, want %q", v, got, want)
		}
	}
}
