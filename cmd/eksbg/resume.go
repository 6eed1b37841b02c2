package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/cutover"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// archive puts a closed run of this pair away.
func (a *applied) archive(j *state.Journal) error {
	err := j.Matches(&state.Plan{Name: a.file.Name, Region: a.file.Region, Variant: state.Variant(a.file.Variant)})
	if err == nil {
		_, err = j.Archive()
	}
	return errors.Join(err, j.Close())
}

// mayResume holds an open run against the saved plan, the clusters and the plan file.
// A put-back that is due waits for none of them (semantics 12, 14): it is made to the
// entrances that the run itself recorded.
func (a *applied) mayResume(ctx context.Context, j *state.Journal) error {
	if err := a.samePart(j.Plan(), j.Records("")); err != nil {
		return err
	}
	if _, due := cutover.PutBackDue(j); due {
		if len(j.Plan().Entrances) > 0 {
			a.file.Traffic = nil
			if err := json.Unmarshal(j.Plan().Entrances, &a.file.Traffic); err != nil {
				return fmt.Errorf("read the traffic targets of run %s: %w", j.Plan().Run, err)
			}
		}
		return a.session.connect(ctx)
	}
	if a.saved != nil && a.saved.Run != j.Plan().Run {
		return &state.Stop{Code: state.ExitStale, Why: fmt.Sprintf("run %s is open, and the saved plan is of another one", j.Plan().Run),
			Cure: applyCommand(j.Plan().File, a.o.state)}
	}
	if err := a.sameFile(j); err != nil {
		return err
	}
	unverified, err := a.session.verify(ctx, j)
	if unverified {
		a.only, a.onlyWhy = presentStage(j), "since EKS does not answer to say that the clusters are still the run's; run the same command again when it does"
	}
	return err
}

// presentStage is the traffic step that is not done yet.
func presentStage(j *state.Journal) string {
	for _, s := range state.Steps(j.Records("")) {
		if s.Kind == state.KindTraffic && !state.StepDone(j.Records(s.ID), s.ID) {
			return s.ID
		}
	}
	return ""
}

func (a *applied) resume(ctx context.Context, j *state.Journal, recovery state.Recovery) error {
	if err := a.mayResume(ctx, j); err != nil {
		return errors.Join(err, j.Close())
	}
	if _, due := cutover.PutBackDue(j); !due { // which needs no lock (semantics 14)
		if err := a.takeLock(ctx, j.Plan().Run, j.Records("")); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	say := "resumed"
	if s := recovery.String(); s != "" {
		say += "; " + s
	}
	who := me(a.session.arn(ctx))
	if _, err := j.Append(state.Record{Kind: state.RecordResumed, Text: say, Who: &who}); err != nil {
		_ = j.Close()
		return err
	}
	a.o.say(fmt.Sprintf("Going on with run %s from %s UTC: %s", j.Plan().Run, j.Plan().CreatedAt.UTC().Format(time.DateTime), say))
	fmt.Fprintln(a.o.err)
	a.use(j)
	return nil
}

// sameFile refuses to go on with a plan file that leads elsewhere than the one that
// the run was made from: another version, variant, stages or traffic targets. Holds,
// gates, waivers and skips may change; approvals that were given for others lapse.
func (a *applied) sameFile(j *state.Journal) error {
	p := j.Plan()
	if p.FileSum == a.sum {
		return nil
	}
	if p.Operation != "" { // goes to no version and moves no traffic
		a.o.say("The plan file changed since the run began; what it says of restarts is used as it is now.")
		return nil
	}
	var differs []string
	if p.Target != a.file.Version || string(p.Variant) != a.file.Variant {
		differs = append(differs, fmt.Sprintf("it says %s %s now, and the run goes to %s %s", a.file.Variant, a.file.Version, p.Variant, p.Target))
	}
	if len(p.Entrances) > 0 && !bytes.Equal(p.Entrances, plan.Entrances(a.file)) {
		differs = append(differs, "its traffic targets are not those of the run, which are "+targets(p.Traffic))
	}
	if was, is := stagesOf(p), a.file.Cutover.Stages; len(was) > 0 && !slices.Equal(was, above(is, was[0])) {
		differs = append(differs, fmt.Sprintf("its stages are %v now, and the run's are %v", is, was))
	}
	if len(differs) > 0 {
		return &state.Stop{Code: state.ExitBlocked,
			Why: "the plan file changed while run " + p.Run + " is open: " + strings.Join(differs, "; ") + "\n" + lastSeen(j) + "\n" + run.SoFar(j.Records("")),
			Cure: "write these into the plan file again to finish the run; holds, gates, waivers and skips may change\n" +
				statusCommand(a.o.path, a.o.state) + "\n" + applyCommand(a.o.path, a.o.state)}
	}
	a.o.say("The plan file changed since the run began; its holds, gates, waivers and skips are used as they are now.")
	return nil
}

// lastSeen says where the traffic was when it was last read.
func lastSeen(j *state.Journal) string {
	m := view.Fold(j.Records(""))
	out := make([]string, 0, len(m.Traffic))
	for _, t := range m.Traffic {
		out = append(out, fmt.Sprintf("%s blue %d %%, green %d %%", t.Target, t.Percent(state.Blue), t.Percent(state.Green)))
	}
	return fmt.Sprintf("the traffic as read at %s: %s. Nobody watches it", m.TrafficAt.UTC().Format("15:04:05 UTC"), strings.Join(out, "; "))
}

func targets(shares []state.Share) string {
	ids := make([]string, 0, len(shares))
	for _, s := range shares {
		ids = append(ids, s.Target)
	}
	return strings.Join(ids, " and ")
}

// stagesOf are the per cents that the run goes through.
func stagesOf(p *state.Plan) []int {
	var out []int
	for _, s := range p.Steps {
		if s.Kind == state.KindTraffic {
			out = append(out, s.Percent)
		}
	}
	return out
}

// above are the stages from the run's first one on: a run that found the traffic split
// begins at the share that was there.
func above(stages []int, first int) []int {
	out := []int{}
	if !slices.Contains(stages, first) {
		out = append(out, first)
	}
	for _, s := range stages {
		if s >= first {
			out = append(out, s)
		}
	}
	return out
}
