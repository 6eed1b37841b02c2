package cluster

import "testing"

func FuzzProvisioned(f *testing.F) {
	for _, s := range []string{"0.25vCPU 0.5GB", "16vCPU 120GB", "vCPU", "NaNvCPU", "-1vCPU", "InfvCPU 1GB", "1e300vCPU", "", "0x1p3vCPU"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if got := provisioned(in); got < 0 {
			t.Fatalf("provisioned(%q) = %d", in, got)
		}
	})
}

func TestProvisioned(t *testing.T) {
	for in, want := range map[string]int32{
		"0.25vCPU 0.5GB": 250, "0.5vCPU 1GB": 500, "16vCPU 120GB": 16000, "4vCPU": 4000,
		"": 0, "0.25": 0, "vCPU 1GB": 0, "NaNvCPU 1GB": 0, "-2vCPU 1GB": 0, "InfvCPU": 0, "1e300vCPU": 0,
	} {
		if got := provisioned(in); got != want {
			t.Errorf("provisioned(%q) = %d, want %d", in, got, want)
		}
	}
}
