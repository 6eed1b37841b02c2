package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
)

func TestMinor(t *testing.T) {
	for in, want := range map[string]string{
		"v1.31.14-eks-6ae7ca2": "1.31", "1.31": "1.31", "v1.31": "1.31", "1.33.0": "1.33", "v1.19.16-eks-6ae7ca2": "1.19",
		"": "", "1": "", "latest": "", "1.x": "", "v1.31-": "1.31", "-1.31": "",
	} {
		got, err := cluster.Minor(in)
		if got != want && want != "" || (err == nil) != (want != "") {
			t.Errorf("Minor(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestMinorOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := func(name string) (int, int, string) {
			major, minor := rapid.IntRange(1, 3).Draw(t, name+" major"), rapid.IntRange(0, 120).Draw(t, name+" minor")
			tail := rapid.SampledFrom([]string{"", ".0", ".14", ".9-eks-1a2b3c4"}).Draw(t, name+" tail")
			return major, minor, fmt.Sprintf("%s%d.%d%s", rapid.SampledFrom([]string{"", "v"}).Draw(t, name+" v"), major, minor, tail)
		}
		amaj, amin, a := v("a")
		bmaj, bmin, b := v("b")
		want := amaj*1000 + amin - bmaj*1000 - bmin
		got := cluster.CompareMinor(a, b)
		if (got < 0) != (want < 0) || (got > 0) != (want > 0) || got != -cluster.CompareMinor(b, a) {
			t.Fatalf("CompareMinor(%s, %s) = %d", a, b, got)
		}
		skew, ok := cluster.Skew(a, b)
		if ok != (amaj == bmaj) || ok && skew != bmin-amin {
			t.Fatalf("Skew(%s, %s) = %d, %v", a, b, skew, ok)
		}
	})
}

func FuzzMinor(f *testing.F) {
	for _, s := range []string{"v1.31.14-eks-6ae7ca2", "1.31", "v", "1.99999999999999999999", "1.31\n1.32", "v1.31+x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := cluster.Minor(in)
		if err != nil {
			if got != "" {
				t.Fatalf("%q with an error", got)
			}
			return
		}
		again, err := cluster.Minor(got)
		if err != nil || again != got || strings.Count(got, ".") != 1 {
			t.Fatalf("Minor(%q) = %q, which is %q, %v", in, got, again, err)
		}
		if cluster.CompareMinor(in, got) != 0 {
			t.Fatalf("%q and %q differ", in, got)
		}
	})
}
