package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
)

type applyOptions struct {
	streams
	path    string
	state   string
	active  string
	output  string
	until   string
	approve []string
	yes     bool
	timeout time.Duration
	// part is what restart and jobs clean run alone; zero for apply.
	part part
}

func newApplyCommand(s streams, runF func(context.Context, *applyOptions) error) *cobra.Command {
	o := &applyOptions{streams: s}
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Run the plan of a plan file or a saved plan, or go on with a run",
		Long: "Plans, asks, runs. FILE is a plan file or a plan that `eksbg plan --out` saved.\n" +
			"When a run is open it goes on where that stands: the world is looked at again and\n" +
			"only what is not done is done.",
		Example: "  eksbg apply plans/shop-hot.yaml\n  eksbg apply plans/shop-hot.yaml --yes --approve cutover",
		Args:    fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runApply(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.yes, "yes", false, "start the run without asking; approves nothing else")
	f.StringArrayVar(&o.approve, "approve", nil, "approve a `PHASE` (upgrade, restart, restart-live, capacity, cutover)")
	f.StringVar(&o.until, "until", "", "stop after the step with this `ID`")
	f.DurationVar(&o.timeout, "timeout", 0, "stop, resumable, after this long (0: never)")
	f.StringVar(&o.active, "active", "", "which side serves the traffic, where the weights do not say (blue or green)")
	f.StringVar(&o.state, "state", "", "the journal `FILE` (default .eksbg/NAME.journal beside the plan file)")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

// applied is what a run needs beside its steps.
type applied struct {
	o       *applyOptions
	file    *planfile.File
	saved   *state.Plan
	sum     string
	journal *state.Journal
	session *session
	path    string // of the journal
	log     *plainLog

	// lock is held while anything may be changed; nil where the traffic is only put back.
	// seen is how the locks were before the plan was made, cancel ends the run's context
	// when one is lost.
	lock   *lease.Lock
	seen   lease.Seen
	cancel context.CancelCauseFunc
	// notes are the lock's, for the journal that is not there yet.
	noteMu sync.Mutex
	notes  []string

	// only is the last step that this process may walk, and why, where something keeps it
	// from going further; empty otherwise.
	only, onlyWhy string
	// remedy is what keeps Job templates from leaving finished Jobs (jobs clean).
	remedy []string
}

func runApply(ctx context.Context, o *applyOptions) error {
	o.err = &patient{w: o.err}
	a := &applied{o: o}
	doc := &document{command: o.part.name()}
	err := a.run(ctx)
	if o.output != "json" {
		return err
	}
	if a.journal == nil { // no run: the document names none
		a.path = ""
	}
	doc.remedies = a.remedy
	return doc.write(o.streams, a.journalRecords(), a.path, err)
}

func (a *applied) journalRecords() []state.Record {
	if a.journal == nil {
		return nil
	}
	return a.journal.Records("")
}

func (a *applied) run(ctx context.Context) (err error) {
	if err := a.load(); err != nil {
		return err
	}
	ctx, stopSignals := withSignals(ctx, a.o.streams, finishing)
	defer stopSignals()
	if a.o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.o.timeout, errTimeout)
		defer cancel()
	}
	ctx, a.cancel = context.WithCancelCause(ctx)
	defer a.cancel(nil)
	defer a.unlock(ctx)
	if err := a.open(ctx); err != nil {
		return err
	}
	if a.journal == nil { // nothing to do, or not wanted
		a.remedies(ctx)
		return nil
	}
	defer func() {
		if cerr := a.journal.Close(); cerr != nil && err == nil {
			err = cerr
		}
	}()
	return a.walk(ctx)
}

// load reads the plan file or the saved plan, and refuses at once what could only
// be refused later.
func (a *applied) load() error {
	o := a.o
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("-o %s: text or json", o.output)
	}
	if o.timeout < 0 {
		return fmt.Errorf("--timeout %s: a time to come, or 0 for never", o.timeout)
	}
	for _, p := range o.approve {
		if !knownPhase(p) {
			return fmt.Errorf("--approve %s: no such phase; there are upgrade, restart, restart-live, capacity and cutover", p)
		}
	}
	content, err := os.ReadFile(o.path)
	if err != nil {
		return notThere(fmt.Errorf("read the plan file: %w", err))
	}
	planPath := o.path
	if err := o.ownPhases(); err != nil {
		return err
	}
	if err := o.sided(state.IsPlan(content)); err != nil {
		return err
	}
	if state.IsPlan(content) {
		if a.saved, err = state.LoadPlan(o.path); err != nil {
			return err
		}
		planPath = a.saved.File
		if content, err = os.ReadFile(planPath); err != nil {
			return notThere(fmt.Errorf("read the plan file that the saved plan was made from: %w", err))
		}
	}
	if a.file, err = planfile.Parse(planPath, content); err != nil {
		return err
	}
	a.sum = sum(content)
	a.path = journalPath(planPath, a.file.Name, o.state)
	if err := a.openRun(); err != nil {
		return err
	}
	if !o.yes && !o.interactive {
		return &state.Stop{Code: state.ExitConsent, Why: "there is no terminal to ask on, and --yes was not given",
			Cure: o.part.look(planPath, o.state) + "\n" + o.part.command(o.path, o.state) + " --yes"}
	}
	a.session, err = newSession(o.streams, planPath, a.file)
	return err
}

func knownPhase(p string) bool {
	switch state.Phase(p) {
	case state.PhaseUpgrade, state.PhaseRestart, state.PhaseRestartLive, state.PhaseCapacity, state.PhaseCutover:
		return true
	}
	return false
}

// open takes up the open run, or plans, asks and begins one.
func (a *applied) open(ctx context.Context) error {
	j, recovery, err := state.Open(a.path, a.o.clock)
	switch {
	case err == nil && j.Closed():
		// A process died between the end of the run and its archiving.
		if err := a.archive(j); err != nil {
			return err
		}
		return a.begin(ctx)
	case err == nil:
		return a.resume(ctx, j, recovery)
	case errors.Is(err, fs.ErrNotExist):
		return a.begin(ctx)
	}
	return err
}

// begin plans, shows, asks, and makes the journal. It leaves a.journal nil when
// there is nothing to do or the answer was no.
func (a *applied) begin(ctx context.Context) error {
	if err := a.seeLocks(ctx); err != nil {
		return err
	}
	p, err := a.plan(ctx)
	if err != nil {
		return err
	}
	if a.saved != nil {
		if a.saved.Fingerprint != p.Fingerprint {
			return &state.Stop{Code: state.ExitStale, Why: "the saved plan is stale: " + strings.Join(plan.Differences(a.saved, p), "; "),
				Cure: withState("eksbg plan "+shellQuote(a.saved.File)+" --out "+shellQuote(a.o.path), a.o.state)}
		}
		p.Run, p.Lineage = a.saved.Run, a.saved.Lineage
	}
	text.Plan(a.o.err, p, a.o.clock.Now(), "")
	if len(p.Steps) == 0 {
		return nil
	}
	if blocked := blockers(p); blocked != nil {
		return blocked
	}
	if _, ok := p.Step(a.o.until); a.o.until != "" && !ok {
		return fmt.Errorf("--until %s: this plan has no such step; eksbg plan -o json names them", a.o.until)
	}
	if err := state.CanCreate(a.path); err != nil {
		return err
	}
	if !a.o.yes {
		ok, err := ask(ctx, a.o.streams, question(len(p.Steps)))
		if err != nil {
			return a.session.explain(ctx, err)
		}
		if !ok {
			return &state.Stop{Code: state.ExitConsent, Why: "not confirmed; nothing has been changed"}
		}
	}
	fmt.Fprintln(a.o.err)
	if err := a.takeLock(ctx, p.Run, nil); err != nil {
		return a.alsoMissing(ctx, p, err)
	}
	if p, err = a.stillStands(ctx, p); err != nil || p == nil {
		return err
	}
	j, err := state.Create(ctx, a.path, p, me(a.session.arn(ctx)), a.o.clock)
	if err != nil {
		return err
	}
	a.use(j)
	return nil
}

// question asks whether to run that many steps.
func question(steps int) string {
	these := "this step"
	if steps > 1 {
		these = fmt.Sprintf("these %d steps", steps)
	}
	return "Run " + these + "? Only 'yes' goes on:"
}

// plan reads the pair and works out what to do.
func (a *applied) plan(ctx context.Context) (*state.Plan, error) {
	if a.o.part.operation != "" {
		return a.session.planAlone(ctx, a.o.part, a.sum, lineageOf(a.path))
	}
	active := state.Side(a.o.active)
	if active == "" && a.saved != nil {
		active = a.saved.Active
	}
	return a.session.plan(ctx, active, a.sum, lineageOf(a.path))
}

// stillStands gives the plan to run. Where another run may have held the lock since it
// was made, the pair is looked at again: a plan that does not fit any more is refused,
// roles that have flipped meanwhile included, and nil says that nothing is left to do.
func (a *applied) stillStands(ctx context.Context, p *state.Plan) (*state.Plan, error) {
	if a.lock.Undisturbed() {
		return p, nil
	}
	a.o.say("Another run may have held the lock since this plan was made: looking at the pair again.")
	again, err := a.plan(ctx)
	if err != nil {
		return nil, err
	}
	if again.Fingerprint == p.Fingerprint {
		again.Run, again.Lineage = p.Run, p.Lineage
		return again, nil
	}
	if len(again.Steps) == 0 {
		text.Plan(a.o.err, again, a.o.clock.Now(), "")
		return nil, nil
	}
	return nil, &state.Stop{Code: state.ExitStale,
		Why:  "the pair changed since this plan was made, and nothing has been changed by this process: " + strings.Join(plan.Differences(p, again), "; "),
		Cure: a.o.part.look(a.session.planPath, a.o.state) + "\n" + a.o.part.command(a.session.planPath, a.o.state)}
}

// operation is what the lock says that it is held for.
func (a *applied) operation() string { return a.o.part.name() }

// walk runs the steps, shows the records as they come, and says where it ended.
func (a *applied) walk(ctx context.Context) error {
	model := view.Fold(a.journal.Records(""))
	a.log = newPlainLog(a.o.err, model)
	defer a.log.close()
	a.journal.OnRecord(a.log.record)
	b := a.session.builder(a.journal, a)
	w := &run.Walker{
		Journal: &underLock{Journal: a.journal, ctx: ctx, lock: a.lock},
		Build:   b.Build,
		Urgent:  b.Urgent,
		Terms:   b.Terms,
		Control: &control{applied: a},
		Until:   a.o.until,
		Login:   a.session.login,
		Next:    a.next,
	}
	if a.only != "" && w.Until == "" {
		w.Until, w.UntilWhy = a.only, a.onlyWhy
	}
	if a.lock != nil {
		ctx = aws.WithGuard(ctx, a.lock.Allow)
	}
	err := w.Walk(ctx)
	a.log.close()
	model = view.Fold(a.journal.Records(""))
	if err != nil {
		return a.stopped(model, err)
	}
	if a.path, err = a.journal.Archive(); err != nil {
		return err
	}
	a.done(ctx, model)
	a.remedies(ctx)
	return nil
}
