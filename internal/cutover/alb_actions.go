package cutover

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/eksbg/eksbg/internal/state"
)

// forwardAt finds the one forward action of a list.
func forwardAt(actions []elbtypes.Action) (int, error) {
	at := slices.IndexFunc(actions, func(a elbtypes.Action) bool { return a.Type == elbtypes.ActionTypeEnumForward })
	if at < 0 {
		var kinds []string
		for _, a := range actions {
			kinds = append(kinds, string(a.Type))
		}
		return -1, fmt.Errorf("it has no forward action (it has %q): make it forward to the active cluster's target group first", kinds)
	}
	return at, nil
}

// forwardGroups gives the target groups that an action list forwards to. A forward
// action without weights is one group with all of the traffic.
func forwardGroups(actions []elbtypes.Action) ([]elbtypes.TargetGroupTuple, error) {
	at, err := forwardAt(actions)
	if err != nil {
		return nil, err
	}
	a := actions[at]
	if a.ForwardConfig != nil && len(a.ForwardConfig.TargetGroups) > 0 {
		return a.ForwardConfig.TargetGroups, nil
	}
	if a.TargetGroupArn == nil {
		return nil, fmt.Errorf("its forward action names no target group")
	}
	return []elbtypes.TargetGroupTuple{{TargetGroupArn: a.TargetGroupArn, Weight: aws.Int32(1)}}, nil
}

func findGroup(groups []elbtypes.TargetGroupTuple, arn string) (elbtypes.TargetGroupTuple, bool) {
	at := slices.IndexFunc(groups, func(g elbtypes.TargetGroupTuple) bool { return aws.ToString(g.TargetGroupArn) == arn })
	if at < 0 {
		return elbtypes.TargetGroupTuple{}, false
	}
	return groups[at], true
}

// weightOf is the group's weight; one that is not stated is 1, the API's default.
func weightOf(g elbtypes.TargetGroupTuple) int {
	if g.Weight == nil {
		return 1
	}
	return int(*g.Weight)
}

// withGroups gives a copy of the list in which the forward action has these groups and
// everything else is as it was. The TargetGroupArn that the API echoes beside the
// forward configuration is left out: both together are only taken for one and the
// same group (Action.TargetGroupArn).
func withGroups(actions []elbtypes.Action, groups []elbtypes.TargetGroupTuple) ([]elbtypes.Action, error) {
	at, err := forwardAt(actions)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(actions)
	config := elbtypes.ForwardActionConfig{TargetGroups: groups}
	if have := out[at].ForwardConfig; have != nil {
		config.TargetGroupStickinessConfig = have.TargetGroupStickinessConfig
	}
	out[at].ForwardConfig = &config
	out[at].TargetGroupArn = nil
	return out, nil
}

// sendable gives the list as it is sent. A described action never holds the client
// secret of its identity provider; the API keeps the one it has when it is told to
// (AuthenticateOidcActionConfig.UseExistingClientSecret).
func sendable(actions []elbtypes.Action) []elbtypes.Action {
	out := slices.Clone(actions)
	for i := range out {
		if out[i].ForwardConfig != nil && len(out[i].ForwardConfig.TargetGroups) > 0 {
			out[i].TargetGroupArn = nil
		}
		if oidc := out[i].AuthenticateOidcConfig; oidc != nil && oidc.ClientSecret == nil {
			kept := *oidc
			kept.UseExistingClientSecret = aws.Bool(true)
			out[i].AuthenticateOidcConfig = &kept
		}
	}
	return out
}

// equalActions compares two action lists whole (semantics 9), in the one form that
// does not depend on how they were written: groups in the order of their ARNs,
// defaults stated, echoes and write-only fields left out.
func equalActions(a, b []elbtypes.Action) bool {
	return string(canonicalActions(a)) == string(canonicalActions(b))
}

func canonicalActions(actions []elbtypes.Action) []byte {
	out := slices.Clone(actions)
	for i := range out {
		a := &out[i]
		if a.Type == elbtypes.ActionTypeEnumForward {
			if groups, err := forwardGroups(out[i : i+1]); err == nil {
				a.ForwardConfig = canonicalForward(a.ForwardConfig, groups)
				a.TargetGroupArn = nil
			}
		}
		if a.AuthenticateOidcConfig != nil {
			oidc := *a.AuthenticateOidcConfig
			oidc.ClientSecret, oidc.UseExistingClientSecret = nil, nil
			a.AuthenticateOidcConfig = &oidc
		}
	}
	slices.SortStableFunc(out, func(a, b elbtypes.Action) int {
		return cmp.Compare(aws.ToInt32(a.Order), aws.ToInt32(b.Order))
	})
	// The order counts, the numbers that express it do not: a single action has none
	// when it is written and may have one when it is read.
	for i := range out {
		out[i].Order = nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		// Actions hold strings, numbers and booleans alone.
		panic(fmt.Sprintf("marshal an action list: %v", err))
	}
	return text
}

func canonicalForward(config *elbtypes.ForwardActionConfig, groups []elbtypes.TargetGroupTuple) *elbtypes.ForwardActionConfig {
	out := &elbtypes.ForwardActionConfig{}
	for _, g := range groups {
		out.TargetGroups = append(out.TargetGroups, elbtypes.TargetGroupTuple{TargetGroupArn: g.TargetGroupArn, Weight: aws.Int32(int32(weightOf(g)))})
	}
	slices.SortFunc(out.TargetGroups, func(a, b elbtypes.TargetGroupTuple) int {
		return cmp.Compare(aws.ToString(a.TargetGroupArn), aws.ToString(b.TargetGroupArn))
	})
	if len(out.TargetGroups) == 1 {
		// One group alone gets everything, whatever its weight is: unless that is 0.
		if w := out.TargetGroups[0].Weight; *w > 0 {
			out.TargetGroups[0].Weight = aws.Int32(1)
		}
	}
	if config != nil && config.TargetGroupStickinessConfig != nil && aws.ToBool(config.TargetGroupStickinessConfig.Enabled) {
		out.TargetGroupStickinessConfig = config.TargetGroupStickinessConfig
	}
	return out
}

// setGroups gives the groups with the pair's weights: members that are not of the pair
// stay as they are, members that are not in the list are added, and those without a
// weight in want are taken out.
func setGroups(groups []elbtypes.TargetGroupTuple, pair map[state.Side]string, want map[state.Side]int) []elbtypes.TargetGroupTuple {
	var out []elbtypes.TargetGroupTuple
	seen := map[state.Side]bool{}
	for _, g := range groups {
		side, ours := sideOf(pair, aws.ToString(g.TargetGroupArn))
		if !ours {
			out = append(out, g)
			continue
		}
		seen[side] = true
		if w, keep := want[side]; keep {
			out = append(out, elbtypes.TargetGroupTuple{TargetGroupArn: g.TargetGroupArn, Weight: aws.Int32(int32(w))})
		}
	}
	for _, side := range state.Sides {
		if w, wanted := want[side]; wanted && !seen[side] {
			out = append(out, elbtypes.TargetGroupTuple{TargetGroupArn: aws.String(pair[side]), Weight: aws.Int32(int32(w))})
		}
	}
	return out
}

func sideOf(pair map[state.Side]string, arn string) (state.Side, bool) {
	for _, side := range state.Sides {
		if pair[side] == arn {
			return side, true
		}
	}
	return "", false
}
