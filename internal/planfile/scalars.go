package planfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// D returns the plain duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String formats the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes what UnmarshalText reads; JSON and YAML go through it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration with units, such as 30s, 5m or 1h30m.
func (d *Duration) UnmarshalText(b []byte) error {
	if _, err := strconv.ParseFloat(string(b), 64); err == nil {
		return fmt.Errorf("%s has no unit; write %ss or %sm", b, b, b)
	}
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is no duration; write it as 30s, 5m or 1h30m", b)
	}
	*d = Duration(v)
	return nil
}

var percentForm = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,9})?) ?%?$`)

// String writes it as 99.9%.
func (p Percent) String() string { return strconv.FormatFloat(float64(p), 'f', -1, 64) + "%" }

// Reached tells whether good of all is at least p, exactly: 999 of 1000 reach 99.9%,
// which floating point would deny. Nothing of nothing reaches nothing. Up to ten
// million samples.
func (p Percent) Reached(good, all int) bool {
	const scale = 1e9 // the digits that UnmarshalText takes
	return all > 0 && int64(good)*100*scale >= int64(math.Round(float64(p)*scale))*int64(all)
}

// MarshalText writes what UnmarshalText reads; JSON and YAML go through it.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads 99.9% or 99.9, from 0 to 100.
func (p *Percent) UnmarshalText(b []byte) error {
	m := percentForm.FindSubmatch(b)
	if m == nil {
		return fmt.Errorf("%q is no percentage; write it as 99.9%%", b)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil || v > 100 {
		return fmt.Errorf("%s is more than 100%%", b)
	}
	*p = Percent(v)
	return nil
}

// UnmarshalJSON reads "99.9%" and 99.9.
func (p *Percent) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		b = []byte(s)
	}
	return p.UnmarshalText(b)
}

// End is the first moment at which what the date bounds holds no longer: the midnight,
// UTC, after that day.
func (d Date) End() time.Time {
	y, m, day := d.Date()
	return time.Date(y, m, day+1, 0, 0, 0, 0, time.UTC)
}

// String writes it as 2026-12-04.
func (d Date) String() string { return d.Format(time.DateOnly) }

// MarshalText writes what UnmarshalText reads.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 2026-12-04.
func (d *Date) UnmarshalText(b []byte) error {
	t, err := time.Parse(time.DateOnly, string(b))
	if err != nil {
		if pe := new(time.ParseError); errors.As(err, &pe) && pe.Message != "" {
			return fmt.Errorf("%s is no day of the calendar", b)
		}
		return fmt.Errorf("%q is no date; write it as 2026-12-04", b)
	}
	d.Time = t
	return nil
}

// MarshalJSON keeps time.Time's own form from being promoted.
func (d Date) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Date) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	return d.UnmarshalText([]byte(s))
}

// MarshalYAML does for YAML what MarshalJSON does for JSON.
func (d Date) MarshalYAML() (any, error) { return d.String(), nil }
