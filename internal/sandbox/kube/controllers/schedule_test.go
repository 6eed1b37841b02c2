package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSchedule(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse("2006-01-02 15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct{ expr, from, want string }{
		{"* * * * *", "2026-11-30 10:00:00", "2026-11-30 10:01:00"},
		{"* * * * *", "2026-11-30 10:00:59", "2026-11-30 10:01:00"},
		{"*/15 * * * *", "2026-11-30 10:46:00", "2026-11-30 11:00:00"},
		{"5,35 8-10 * * *", "2026-11-30 10:35:00", "2026-12-01 08:05:00"},
		{"0 4 * * *", "2026-11-30 04:00:00", "2026-12-01 04:00:00"},
		{"0 0 1 1 *", "2026-11-30 10:00:00", "2027-01-01 00:00:00"},
		{"0 0 29 2 *", "2026-11-30 10:00:00", "2028-02-29 00:00:00"},
		{"0 0 13 * fri", "2026-11-30 10:00:00", "2026-12-04 00:00:00"}, // either day
		{"0 0 * * MON-wed", "2026-11-30 10:00:00", "2026-12-01 00:00:00"},
		{"@hourly", "2026-11-30 10:00:01", "2026-11-30 11:00:00"},
		{"10-20/5 * * * *", "2026-11-30 10:15:00", "2026-11-30 10:20:00"},
		{"30/10 * * * *", "2026-11-30 10:51:00", "2026-11-30 11:30:00"},
	} {
		s, err := parseSchedule(c.expr, nil)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		if got := s.next(at(c.from)); !got.Equal(at(c.want)) {
			t.Errorf("%s after %s is %s, want %s", c.expr, c.from, got, c.want)
		}
	}
	for _, bad := range []string{"", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *", "a * * * *", "5-1 * * * *", "@every 1m"} {
		if _, err := parseSchedule(bad, nil); err == nil {
			t.Errorf("%q is taken for a schedule", bad)
		}
	}
	zone := "Asia/Tokyo"
	s, err := parseSchedule("0 4 * * *", &zone)
	if err != nil {
		t.Skip("no time zones on this machine: " + err.Error())
	}
	if got := s.next(at("2026-11-30 10:00:00")); !got.Equal(at("2026-11-30 19:00:00")) {
		t.Errorf("04:00 in Tokyo is %s", got.UTC())
	}
	none := "Nowhere/Atall"
	if _, err := parseSchedule("0 4 * * *", &none); err == nil {
		t.Error("a time zone that is not there is taken")
	}
}

// TestNextIsTheFirst holds next and latest against looking at every minute.
func TestNextIsTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := func(name string, b bounds) string {
			switch rapid.IntRange(0, 3).Draw(t, name+" form") {
			case 0:
				return "*"
			case 1:
				return fmt.Sprintf("*/%d", rapid.IntRange(1, b.high).Draw(t, name+" step"))
			case 2:
				low := rapid.IntRange(b.low, b.high).Draw(t, name+" low")
				return fmt.Sprintf("%d-%d", low, rapid.IntRange(low, b.high).Draw(t, name+" high"))
			}
			return fmt.Sprint(rapid.IntRange(b.low, b.high).Draw(t, name))
		}
		expr := strings.Join([]string{field("minute", minutes), field("hour", hours), "*", "*", field("weekday", weekdays)}, " ")
		s, err := parseSchedule(expr, nil)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		from := time.Unix(rapid.Int64Range(1.7e9, 1.9e9).Draw(t, "from"), 0).UTC()
		due := func(m time.Time) bool {
			return has(s.minute, m.Minute()) && has(s.hour, m.Hour()) && s.on(m)
		}
		want := from.Truncate(time.Minute).Add(time.Minute)
		for !due(want) {
			want = want.Add(time.Minute)
		}
		if got := s.next(from); !got.Equal(want) {
			t.Fatalf("%s after %s is %s, want %s", expr, from, got, want)
		}
		now := want.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "later")) * time.Minute)
		last := now.Truncate(time.Minute)
		for !due(last) {
			last = last.Add(-time.Minute)
		}
		if got, ok := s.latest(from, now); !ok || !got.Equal(last) {
			t.Fatalf("%s between %s and %s was last due at %s (%v), want %s", expr, from, now, got, ok, last)
		}
	})
}

func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"* * * * *", "*/5 0-3,7 1 jan mon", "@daily", "1-2/3 ? * * ?", "-- - / , *"} {
		f.Add(s)
	}
	now := time.Unix(1764500000, 0).UTC()
	f.Fuzz(func(t *testing.T, expr string) {
		s, err := parseSchedule(expr, nil)
		if err != nil {
			return
		}
		if next := s.next(now); !next.IsZero() && !next.After(now) {
			t.Errorf("%q is due at %s after %s", expr, next, now)
		}
	})
}
