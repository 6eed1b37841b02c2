package controllers

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// schedule is a cron expression of five fields as CronJobs have it: sets of minutes,
// hours, days of the month, months and days of the week, one bit each.
type schedule struct {
	minute, hour, day, month, weekday uint64
	// anyDay and anyWeekday are true for "*": when both are restricted, either is enough.
	anyDay, anyWeekday bool
	zone               *time.Location
}

type bounds struct {
	low, high int
	names     []string // of low, low+1, …
}

var (
	minutes  = bounds{0, 59, nil}
	hours    = bounds{0, 23, nil}
	days     = bounds{1, 31, nil}
	months   = bounds{1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")}
	weekdays = bounds{0, 6, strings.Fields("sun mon tue wed thu fri sat")}
	macros   = map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
		"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
	}
)

// parseSchedule reads an expression; "@every" and "TZ=" are not known here. zone may be nil.
func parseSchedule(text string, zone *string) (*schedule, error) {
	s := &schedule{zone: time.UTC}
	if zone != nil {
		loc, err := time.LoadLocation(*zone)
		if err != nil {
			return nil, fmt.Errorf("invalid timeZone: %q: %w", *zone, err)
		}
		s.zone = loc
	}
	if m, ok := macros[text]; ok {
		text = m
	}
	f := strings.Fields(text)
	if len(f) != 5 {
		return nil, fmt.Errorf("expected exactly 5 fields, found %d: %v", len(f), f)
	}
	for i, part := range []struct {
		set *uint64
		in  bounds
	}{{&s.minute, minutes}, {&s.hour, hours}, {&s.day, days}, {&s.month, months}, {&s.weekday, weekdays}} {
		var err error
		if *part.set, err = part.in.parse(f[i]); err != nil {
			return nil, err
		}
	}
	s.anyDay = strings.HasPrefix(f[2], "*") || f[2] == "?"
	s.anyWeekday = strings.HasPrefix(f[4], "*") || f[4] == "?"
	return s, nil
}

// parse reads one field: a list of *, n, n-m, each with an optional /step.
func (b bounds) parse(field string) (uint64, error) {
	var set uint64
	for _, item := range strings.Split(field, ",") {
		span, by, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			n, err := strconv.Atoi(by)
			if err != nil || n < 1 {
				return 0, fmt.Errorf("failed to parse int from %s", item)
			}
			step = n
		}
		low, high := b.low, b.high
		if span != "*" && span != "?" {
			from, to, ranged := strings.Cut(span, "-")
			var err error
			if low, err = b.number(from); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if high, err = b.number(to); err != nil {
					return 0, err
				}
			case !stepped:
				high = low
			}
		}
		if low < b.low || high > b.high || low > high {
			return 0, fmt.Errorf("%s is not within %d and %d", item, b.low, b.high)
		}
		for n := low; n <= high; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func (b bounds) number(s string) (int, error) {
	for i, name := range b.names {
		if strings.EqualFold(s, name) {
			return b.low + i, nil
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s", s)
	}
	return n, nil
}

func has(set uint64, n int) bool { return set&(1<<n) != 0 }

func (s *schedule) on(t time.Time) bool {
	day, weekday := has(s.day, t.Day()), has(s.weekday, int(t.Weekday()))
	if s.anyDay || s.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

// next is the first time after t that the schedule names, or zero when there is none
// within five years.
func (s *schedule) next(t time.Time) time.Time {
	t = t.In(s.zone).Truncate(time.Second)
	t = t.Add(time.Minute - time.Duration(t.Second())*time.Second)
	for limit := t.AddDate(5, 0, 0); t.Before(limit); {
		switch {
		case !has(s.month, int(t.Month())):
			t = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, s.zone)
		case !s.on(t):
			t = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, s.zone)
		case !has(s.hour, t.Hour()):
			t = t.Add(time.Hour - time.Duration(t.Minute())*time.Minute)
		case !has(s.minute, t.Minute()):
			left := s.minute >> (t.Minute() + 1)
			if left == 0 {
				t = t.Add(time.Hour - time.Duration(t.Minute())*time.Minute)
				continue
			}
			t = t.Add(time.Duration(bits.TrailingZeros64(left)+1) * time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

// latest is the last time after since and not after now that the schedule names; false
// when there is none.
func (s *schedule) latest(since, now time.Time) (time.Time, bool) {
	// Far back in time only the last stretch counts, for which the gaps grow.
	for back := time.Hour; ; back *= 24 {
		from := now.Add(-back)
		if from.Before(since) {
			from = since
		}
		var last time.Time
		for t := s.next(from); !t.IsZero() && !t.After(now); t = s.next(t) {
			last = t
		}
		if !last.IsZero() || from.Equal(since) {
			return last, !last.IsZero()
		}
	}
}
