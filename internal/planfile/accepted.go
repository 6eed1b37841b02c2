package planfile

import "time"

// Waiver returns the waiver of a finding by its name, as long as its last day is not
// over at now.
func (f *File) Waiver(check string, now time.Time) (Waiver, bool) {
	for _, w := range f.Waive {
		if w.Check == check && now.Before(w.Until.End()) {
			return w, true
		}
	}
	return Waiver{}, false
}

// ExpiredWaivers returns the waivers that waive nothing any more.
func (f *File) ExpiredWaivers(now time.Time) []Waiver {
	var out []Waiver
	for _, w := range f.Waive {
		if !now.Before(w.Until.End()) {
			out = append(out, w)
		}
	}
	return out
}

// Skipped returns the skip of an owner (namespace/Kind/name), as long as its last day
// is not over at now.
func (r Restart) Skipped(owner string, now time.Time) (Skip, bool) {
	for _, s := range r.Skip {
		if s.Owner == owner && now.Before(s.Until.End()) {
			return s, true
		}
	}
	return Skip{}, false
}

// ExpiredSkips returns the skips that skip nothing any more.
func (r Restart) ExpiredSkips(now time.Time) []Skip {
	var out []Skip
	for _, s := range r.Skip {
		if !now.Before(s.Until.End()) {
			out = append(out, s)
		}
	}
	return out
}

// Allowed returns the permission of an action (ActionEvict, …) on an owner
// (namespace/Kind/name).
func (r Restart) Allowed(owner, action string) (Allow, bool) {
	for _, a := range r.Allow {
		if a.Owner == owner && a.Action == action {
			return a, true
		}
	}
	return Allow{}, false
}
