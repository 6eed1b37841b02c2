package state

// OpenIntents returns, in order, the intents that have no outcome: whether they took
// effect is to be looked up in the world.
func OpenIntents(records []Record) []Record {
	settled := map[int64]bool{}
	for _, r := range records {
		if r.Kind == RecordOutcome {
			settled[r.Intent] = true
		}
	}
	var open []Record
	for _, r := range records {
		if r.Kind == RecordIntent && !settled[r.Seq] {
			open = append(open, r)
		}
	}
	return open
}

// OutcomeOf returns the last outcome of an intent (a change may first be accepted and
// then have succeeded or failed); false while it is open.
func OutcomeOf(records []Record, intent int64) (Record, bool) {
	for i := len(records) - 1; i >= 0; i-- {
		if r := records[i]; r.Kind == RecordOutcome && r.Intent == intent {
			return r, true
		}
	}
	return Record{}, false
}

// LastOf returns the last record of a kind.
func LastOf(records []Record, kind RecordKind) (Record, bool) {
	for i := len(records) - 1; i >= 0; i-- {
		if records[i].Kind == kind {
			return records[i], true
		}
	}
	return Record{}, false
}

// OfKind returns the records of a kind in order.
func OfKind(records []Record, kind RecordKind) []Record {
	var out []Record
	for _, r := range records {
		if r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}
