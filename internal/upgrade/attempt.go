package upgrade

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/eksbg/eksbg/internal/state"
)

// The changing calls of this package, as IAM spells them.
const (
	callUpdateCluster = "eks:UpdateClusterVersion"
	callUpdateAddon   = "eks:UpdateAddon"
)

// attemptDetail is what an intent keeps to recognise its effect by.
type attemptDetail struct {
	// Token is the ClientRequestToken, 36 characters.
	Token string `json:"token"`
	From  string `json:"from"`
	To    string `json:"to"`
	// Attempt counts the attempts of the step from 1.
	Attempt int `json:"attempt"`
	// Configuration digests the configuration values of an add-on before its raise.
	Configuration string `json:"configuration,omitempty"`
}

// updateDetail is what an outcome keeps: the update that the attempt started.
type updateDetail struct {
	UpdateID string `json:"updateId"`
}

// attempt is one try of a changing call, as the journal tells it.
type attempt struct {
	attemptDetail
	seq int64
	at  time.Time
	// updateID is set once EKS accepted it or the update was found.
	updateID string
	// closed: nothing is to come of it any more.
	closed bool
	// former are the updates of the attempts before it, which are not its own.
	former []string
}

// lastAttempt is the latest attempt of the step, or nil when there was none.
func lastAttempt(h state.History, step, call string) (*attempt, error) {
	var last *attempt
	for _, r := range h.Records(step) {
		switch {
		case r.Kind == state.RecordIntent && r.Change != nil && r.Change.Call == call:
			last = &attempt{seq: r.Seq, at: r.Time, former: last.updates()}
			if err := json.Unmarshal(r.Change.Detail, &last.attemptDetail); err != nil {
				return nil, fmt.Errorf("journal record %d: detail of the intent to call %s: %w", r.Seq, call, err)
			}
			if last.Token == "" {
				return nil, fmt.Errorf("journal record %d: the intent to call %s holds no token", r.Seq, call)
			}
		case r.Kind == state.RecordOutcome && last != nil && r.Intent == last.seq:
			last.outcome(r)
		}
	}
	return last, nil
}

// updates are those that the attempt and the ones before it started.
func (a *attempt) updates() []string {
	switch {
	case a == nil:
		return nil
	case a.updateID == "":
		return a.former
	}
	return append(slices.Clone(a.former), a.updateID)
}

// outcome takes in what the journal says came of the attempt.
func (a *attempt) outcome(r state.Record) {
	var d updateDetail
	// Outcomes without an update have no such detail.
	_ = json.Unmarshal(r.Detail, &d)
	if d.UpdateID != "" {
		a.updateID = d.UpdateID
	}
	switch r.Result {
	case state.Succeeded, state.Failed, state.Rejected:
		a.closed = true
	case state.Found:
		// Found without an update: the world is as wanted.
		a.closed = a.closed || d.UpdateID == ""
	}
}

// next is the detail of the attempt after this one, with a token of its own.
func next(last *attempt, from, to string) attemptDetail {
	n := 1
	if last != nil {
		n = last.Attempt + 1
	}
	return attemptDetail{Token: uuid.NewString(), From: from, To: to, Attempt: n}
}
