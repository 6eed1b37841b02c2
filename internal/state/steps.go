package state

// RecordPutBack says that the traffic was put back to the weights before the run.
// Approvals given before it lapse (semantics 4, 16).
const RecordPutBack RecordKind = "put-back"

// Steps returns the steps that a run walks: those of its plan with the ones that
// were put in while it was under way, each in front of the step that needed it.
func Steps(records []Record) []StepSpec {
	var steps []StepSpec
	for _, r := range records {
		switch r.Kind {
		case RecordPlan:
			if r.Plan != nil {
				steps = append([]StepSpec(nil), r.Plan.Steps...)
			}
		case RecordInserted:
			if r.Spec != nil {
				steps = insertBefore(steps, *r.Spec, r.Step)
			}
		}
	}
	return steps
}

func insertBefore(steps []StepSpec, spec StepSpec, before string) []StepSpec {
	at := len(steps)
	for i, s := range steps {
		if s.ID == spec.ID {
			return steps
		}
		if s.ID == before && at == len(steps) {
			at = i
		}
	}
	out := make([]StepSpec, 0, len(steps)+1)
	out = append(out, steps[:at]...)
	out = append(out, spec)
	return append(out, steps[at:]...)
}

// StepDone tells whether the journal says that the step was seen done.
func StepDone(records []Record, id string) bool {
	for i := len(records) - 1; i >= 0; i-- {
		if records[i].Step == id && records[i].Kind == RecordDone {
			return true
		}
	}
	return false
}

// Changed lists what a run has changed so far, one line a change, in order: every
// outcome that is not a rejection, and every intent whose outcome is not known.
func Changed(records []Record) []string {
	intents := map[int64]Record{}
	outcome := map[int64]Result{}
	var order []int64
	for _, r := range records {
		switch r.Kind {
		case RecordIntent:
			intents[r.Seq] = r
			order = append(order, r.Seq)
		case RecordOutcome:
			outcome[r.Intent] = r.Result
		}
	}
	var out []string
	for _, seq := range order {
		c := intents[seq].Change
		if c == nil {
			continue
		}
		switch outcome[seq] {
		case Rejected:
		case "", Unknown:
			out = append(out, c.Call+" "+c.Object+" (outcome not known)")
		default:
			out = append(out, c.Call+" "+c.Object)
		}
	}
	return out
}
