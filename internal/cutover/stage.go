package cutover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// readBack is how long reads after a change are repeated before they count
// (semantics 8).
const readBack = 30 * time.Second

// StageDeps is everything that a stage of the cutover needs of the world.
type StageDeps struct {
	// Traffic are the entrances of the pair in the order of the plan file, as Open
	// made them. They are moved in this order and put back in the reverse one.
	Traffic []Traffic
	// Start holds the weights from before the run (state.Plan.Traffic): what a
	// put-back goes back to.
	Start []state.Share
	// Origin has the traffic when the run starts, Destination gets it.
	Origin, Destination state.Side

	// Gates must pass before the shift (as far as they can be asked then) and after it.
	Gates []planfile.Gate
	// Hold is how long a stage is watched before its verdict.
	Hold time.Duration
	// Patience is how long a gate may stay without an answer before exit 4.
	Patience time.Duration
	// Remaining is the time that all further stages will hold, for a warning about
	// credentials that end before the last one.
	Remaining time.Duration

	Clock   clock.WithTicker
	History state.History
	Prober  Prober

	// CredentialsExpire tells when the first of the credentials in use ends; the zero
	// time when they do not. Nil stands for credentials that do not end.
	CredentialsExpire func(context.Context) (time.Time, error)
	// OnInterrupt decides what happens when the run is interrupted between the first
	// shift and the last gate: true puts the traffic back, false leaves it. Nil puts
	// it back (semantics 20).
	OnInterrupt func() (back bool)
	// Stderr takes the records of a put-back that the journal could not take
	// (semantics 14), one line each. Nil drops them.
	Stderr func(line string)
	// ReadBack is how long reads after a change are repeated before they count; 0
	// stands for the 30 s of semantics 8.
	ReadBack time.Duration
	// Blind is how long a Route 53 change without an id is waited for; 0 stands for the
	// 60 s of semantics 8.
	Blind time.Duration
}

// Stage is one traffic step: it brings the destination to its share, watches it
// through the hold, and puts everything back when a gate fails.
type Stage struct {
	spec state.StepSpec
	d    StageDeps
}

// NewStage makes the step of a spec of kind traffic.
func NewStage(spec state.StepSpec, d StageDeps) *Stage {
	if d.ReadBack == 0 {
		d.ReadBack = readBack
	}
	if d.Blind == 0 {
		d.Blind = inSyncBlind
	}
	return &Stage{spec: spec, d: d}
}

// Spec is the step as data.
func (s *Stage) Spec() state.StepSpec { return s.spec }

// scene is what a stage looks at: the objects that it changes, and what the journal
// says about them.
type scene struct {
	movers []mover
	ledger *ledger
	start  map[string]state.Share
}

func (s *Stage) scene(ctx context.Context) (*scene, error) {
	movers, err := moversOf(ctx, s.d.Traffic)
	if err != nil {
		return nil, err
	}
	l, err := readLedger(s.d.History)
	if err != nil {
		return nil, err
	}
	sc := &scene{movers: movers, ledger: l, start: map[string]state.Share{}}
	for _, share := range s.d.Start {
		sc.start[share.Target] = share
	}
	for _, t := range s.d.Traffic {
		if _, ok := sc.start[t.ID()]; !ok {
			return nil, &state.Stop{Code: state.ExitBlocked,
				Why:  fmt.Sprintf("the plan of this run does not hold the weights of traffic target %s from before it", t.ID()),
				Cure: "the traffic of the plan file was changed during the run: change it back"}
		}
	}
	return sc, nil
}

// reading is one reading of all targets.
type reading struct {
	views  []*view // one per mover
	shares []state.Share
	pairs  []pairView
}

func (s *Stage) look(ctx context.Context, sc *scene) (*reading, error) {
	r := &reading{}
	for _, m := range sc.movers {
		v, err := m.read(ctx)
		if err != nil {
			return nil, err
		}
		r.views = append(r.views, v)
		r.shares = append(r.shares, v.shares...)
		r.pairs = append(r.pairs, v.pairs...)
	}
	return r, nil
}

// reached tells whether every pair of every target has at least a per cent on the
// destination.
func (r *reading) reached(dest state.Side, percent int) bool {
	for _, p := range r.pairs {
		if !p.pair(dest).reached(percent) {
			return false
		}
	}
	return true
}

// foreign says which weights nobody of this run set; "" when all are explained.
func (s *Stage) foreign(sc *scene, r *reading) string {
	var out []string
	for _, now := range r.shares {
		start := sc.start[now.Target]
		if sc.ledger.explains(now, start) {
			continue
		}
		want := sc.ledger.expected(start)
		by := sc.ledger.setBy[now.Target]
		if by == "" {
			by = "the plan"
		}
		out = append(out, fmt.Sprintf("%s has blue %d, green %d, but blue %d, green %d is what %s left",
			now.Target, now.Blue, now.Green, want.Blue, want.Green, by))
	}
	return strings.Join(out, "\n")
}

// lookTwice reads the weights; what nobody explains is read again for as long as reads
// after a change may be stale, when the last change of this run is that fresh.
func (s *Stage) lookTwice(ctx context.Context, sc *scene) (*reading, string, error) {
	r, err := s.lookUntil(ctx, sc, func(r *reading) bool { return s.foreign(sc, r) == "" })
	if err != nil {
		return nil, "", err
	}
	return r, s.foreign(sc, r), nil
}

// lookUntil reads the weights until they are as expected, for as long as reads after the
// last change of this run may be stale (semantics 8); what is read last counts.
func (s *Stage) lookUntil(ctx context.Context, sc *scene, expected func(*reading) bool) (*reading, error) {
	deadline := sc.ledger.lastChange().Add(s.d.ReadBack)
	for pause := firstPause; ; pause = longer(pause, readBackPause) {
		r, err := s.look(ctx, sc)
		if err != nil {
			return nil, err
		}
		if expected(r) || !s.d.Clock.Now().Before(deadline) {
			return r, nil
		}
		if err := s.sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// Observe reads the weights of all targets and says where the stage stands: Done only
// when they are where the stage wants them and the journal holds a verdict newer than
// them (semantics 12), Blocked when somebody else set them.
func (s *Stage) Observe(ctx context.Context) (state.Observation, error) {
	sc, err := s.scene(context.WithoutCancel(ctx))
	if err != nil {
		return blockedOr(err)
	}
	if sc.ledger.due != "" {
		return state.Observation{Status: state.Ready, Reason: "the traffic has to be put back first: " + sc.ledger.due}, nil
	}
	if sc.ledger.shifted(sc.start) {
		// Interrupted with traffic on both sides, Act has to decide about it (semantics 20);
		// so the look before it is not given up.
		ctx = context.WithoutCancel(ctx)
	}
	r, who, err := s.lookTwice(ctx, sc)
	if err != nil {
		return blockedOr(err)
	}
	if who != "" && s.backAlready(sc, r) {
		return state.Observation{Status: state.Ready, Reason: backByOthers}, nil
	}
	if who != "" {
		return state.Observation{Status: state.Blocked, Reason: "somebody else changed the weights: " + who, Cure: s.foreignCure(sc, r)}, nil
	}
	now := s.weights(r.shares)
	switch at := r.reached(s.d.Destination, s.spec.Percent); {
	case at && sc.ledger.passedAt(s.spec.Percent):
		return state.Observation{Status: state.Done, Reason: now}, nil
	case at:
		return state.Observation{Status: state.Ready, Reason: now + ", not watched to the end yet"}, nil
	}
	return state.Observation{Status: state.Ready, Reason: now}, nil
}

// backByOthers says that the traffic is where it was before the run although the journal
// does not know how: put back by hand, or while the journal could not be written.
const backByOthers = "the traffic was put back to where it was before the run, and the journal does not hold by whom"

// backAlready tells whether every target has the weights from before the run.
func (s *Stage) backAlready(sc *scene, r *reading) bool {
	for _, now := range r.shares {
		if !sameProportion(now, sc.start[now.Target]) {
			return false
		}
	}
	return true
}

// blockedOr turns a deliberate block into an observation.
func blockedOr(err error) (state.Observation, error) {
	var stop *state.Stop
	if errors.As(err, &stop) && stop.Code == state.ExitBlocked {
		return state.Observation{Status: state.Blocked, Reason: stop.Error(), Cure: stop.Cure}, nil
	}
	return state.Observation{}, err
}

// foreignCure says how to find out who it was, and how to get back to what the run
// expects.
func (s *Stage) foreignCure(sc *scene, r *reading) string {
	cure := []string{"look who changed them: AWS CloudTrail has it under ChangeResourceRecordSets, ModifyListener or ModifyRule",
		"to go on with this run, set the weights that it left, then run the same command again:"}
	for i, m := range sc.movers {
		c, needed, err := m.propose(r.views[i], want{purpose: putBack, dest: s.d.Destination, before: func(target string) (*change, state.Share) {
			return nil, sc.ledger.expected(sc.start[target])
		}})
		if err == nil && needed {
			for _, line := range m.commands(r.views[i], c) {
				cure = append(cure, "  "+line)
			}
		}
	}
	return strings.Join(cure, "\n")
}

// weights says all weights in one line, per cent of each side.
func (s *Stage) weights(shares []state.Share) string {
	var out []string
	for _, sh := range shares {
		out = append(out, fmt.Sprintf("%s blue %d %%, green %d %%", sh.Target, sh.Percent(state.Blue), sh.Percent(state.Green)))
	}
	return strings.Join(out, "; ")
}

// Pauses between polls: short at first, since much is done within a second, then longer.
const (
	firstPause    = 250 * time.Millisecond
	readBackPause = 5 * time.Second
)

func longer(pause, most time.Duration) time.Duration { return min(2*pause, most) }

// sleep waits on the stage's clock; cancellation ends it at once.
func (s *Stage) sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	t := s.d.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C():
		return nil
	}
}
