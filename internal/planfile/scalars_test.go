package planfile_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/planfile"
)

type scalars struct {
	D planfile.Duration `json:"d" yaml:"d"`
	P planfile.Percent  `json:"p" yaml:"p"`
	T planfile.Date     `json:"t" yaml:"t"`
}

// TestScalarsThereAndBack: what is written as JSON, as YAML or as text reads as the same.
func TestScalarsThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(0, 30000).Draw(t, "day"))
		want := scalars{
			D: planfile.Duration(rapid.Int64Range(-int64(1000*time.Hour), int64(1000*time.Hour)).Draw(t, "duration")),
			P: planfile.Percent(float64(rapid.IntRange(0, 100000).Draw(t, "percent")) / 1000),
			T: planfile.Date{Time: day},
		}
		var j, y scalars
		b, err := json.Marshal(want)
		if err == nil {
			err = json.Unmarshal(b, &j)
		}
		if err != nil || j != want {
			t.Fatalf("JSON %s reads as %v, %v; want %v", b, j, err, want)
		}
		b, err = yaml.Marshal(want)
		if err == nil {
			err = yaml.Unmarshal(b, &y)
		}
		if err != nil || y != want {
			t.Fatalf("YAML %s reads as %v, %v; want %v", b, y, err, want)
		}
		if end := want.T.End(); end.Sub(day) != 24*time.Hour {
			t.Fatalf("%v ends at %v", want.T, end)
		}
	})
}

func TestPercentAsNumber(t *testing.T) {
	var p planfile.Percent
	if err := json.Unmarshal([]byte("99.9"), &p); err != nil || p.String() != "99.9%" {
		t.Errorf("%v, %v", p, err)
	}
	for _, s := range []string{"", "%", "-1", "100.1", "1e2", "NaN", "9 9", "1.2.3", ".5", "1%%"} {
		if err := p.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q reads as %v", s, p)
		}
	}
}

func TestPercentReached(t *testing.T) {
	for _, c := range []struct {
		p         planfile.Percent
		good, all int
		want      bool
	}{
		{99.9, 999, 1000, true},
		{99.9, 998, 1000, false},
		{99.9, 1998, 2000, true},
		{99.9, 1997, 2000, false},
		{100, 12, 12, true},
		{100, 999_999, 1_000_000, false},
		{99.9999, 999_999, 1_000_000, true},
		{1, 0, 0, false},
	} {
		if have := c.p.Reached(c.good, c.all); have != c.want {
			t.Errorf("%d of %d reach %v: %v", c.good, c.all, c.p, have)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.IntRange(1, 1_000_000).Draw(t, "all")
		tenths := rapid.IntRange(1, 1000).Draw(t, "tenths")
		good := rapid.IntRange(0, all).Draw(t, "good")
		if have, want := planfile.Percent(float64(tenths)/10).Reached(good, all), good*1000 >= tenths*all; have != want {
			t.Fatalf("%d of %d reach %d/10 %%: %v", good, all, tenths, have)
		}
	})
}
