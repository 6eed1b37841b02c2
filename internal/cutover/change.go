package cutover

import (
	"context"
	"errors"

	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/state"
)

// purpose says what a change is for.
type purpose string

const (
	// attach puts the destination's target group on the listener or rule at weight 0.
	attach purpose = "attach"
	// shift gives the destination its share of a stage.
	shift purpose = "shift"
	// putBack restores the weights from before the run.
	putBack purpose = "put-back"
)

// change is one call that changes traffic, whole: it is the detail of the intent, and
// what the world is compared with when the answer is lost (semantics 8, 9).
type change struct {
	Purpose purpose `json:"purpose"`
	// Percent is the destination's share that a shift is for.
	Percent int    `json:"percent,omitempty"`
	Moves   []move `json:"moves"`

	// ZoneID and the record sets are those of a Route 53 batch.
	ZoneID  string                       `json:"zoneID,omitempty"`
	OldSets []r53types.ResourceRecordSet `json:"oldSets,omitempty"`
	NewSets []r53types.ResourceRecordSet `json:"newSets,omitempty"`

	// Listener or Rule and the action lists are those of an ALB.
	Listener   string            `json:"listener,omitempty"`
	Rule       string            `json:"rule,omitempty"`
	OldActions []elbtypes.Action `json:"oldActions,omitempty"`
	NewActions []elbtypes.Action `json:"newActions,omitempty"`
}

// move is what a change does to one traffic target.
type move struct {
	Target string      `json:"target"`
	Old    state.Share `json:"old"`
	New    state.Share `json:"new"`
}

// inverse is the undo of an intent: the old state whole.
type inverse struct {
	ZoneID   string                       `json:"zoneID,omitempty"`
	Sets     []r53types.ResourceRecordSet `json:"sets,omitempty"`
	Listener string                       `json:"listener,omitempty"`
	Rule     string                       `json:"rule,omitempty"`
	Actions  []elbtypes.Action            `json:"actions,omitempty"`
}

func (c *change) undo() inverse {
	return inverse{ZoneID: c.ZoneID, Sets: c.OldSets, Listener: c.Listener, Rule: c.Rule, Actions: c.OldActions}
}

// move finds the part of a change that concerns a target.
func (c *change) move(target string) (move, bool) {
	for _, m := range c.Moves {
		if m.Target == target {
			return m, true
		}
	}
	return move{}, false
}

// standing is where the world stands towards a change.
type standing int

const (
	// elsewhere: neither as before nor as after the change; somebody else was there.
	elsewhere standing = iota
	// asBefore and asAfter: equal to the old or the new state, whole.
	asBefore
	asAfter
)

// want is what a mover is asked to propose a change for.
type want struct {
	purpose purpose
	dest    state.Side
	percent int
	// before holds, for a put-back, the earliest journaled change of a target of this
	// run (nil where there is none) and the weights that the plan saw.
	before func(target string) (*change, state.Share)
}

// view is a mover's part of the world as read at one moment.
type view struct {
	shares  []state.Share
	pairs   []pairView
	records []recordView
	actions []elbtypes.Action
}

// pairView is one pair of weights of a target: an ALB has one, a record one per type.
type pairView struct {
	target string
	pair   func(dest state.Side) pair
	// others is the weight of the members that are not of the pair.
	others int
}

// mover makes changes of one object: a hosted zone or one action list.
type mover interface {
	// call is the API call as IAM spells it, object what it is made to, for people.
	call() string
	object() string
	// targets are the ids of the traffic targets that it moves, in order.
	targets() []string
	read(ctx context.Context) (*view, error)
	// propose gives the change that brings what was read to what is wanted; false when
	// there is nothing to change.
	propose(v *view, w want) (*change, bool, error)
	// send makes the change and gives the handle that confirms it, if there is one. It
	// returns errForeign when the world is no longer as the change expects.
	send(ctx context.Context, c *change) (handle string, err error)
	// pending asks once whether a change is still on its way to where it takes effect.
	pending(ctx context.Context, handle string) (bool, error)
	// confirms is true when changes have handles to ask with pending.
	confirms() bool
	// compare says where the world stands towards a change.
	compare(v *view, c *change) standing
	// commands are the AWS CLI commands that would make the change by hand; now is nil
	// when the world could not be read.
	commands(now *view, c *change) []string
	// imagine gives the view that a change leaves, for when the world cannot be read.
	imagine(c *change) *view
}

// errForeign says that somebody else changed what was to be changed.
var errForeign = errors.New("somebody else changed it meanwhile")
