package eks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
)

// Whatever is asked in whatever order: versions go up one at a time, each by exactly
// one successful update, and no two updates run at once.
func TestUpdatesNeverOverlapNorSkip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, func(o *eks.Options) { o.Kubelets = nil })
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "wait") {
				r.clock.Step(time.Duration(rapid.IntRange(1, 12).Draw(rt, "minutes")) * time.Minute)
				continue
			}
			version := fmt.Sprintf("1.%d", rapid.IntRange(30, 36).Draw(rt, "version"))
			_, _ = r.raise(t, version, fmt.Sprintf("token-%d", rapid.IntRange(0, 3).Draw(rt, "token")))
		}
		r.clock.Step(time.Hour)
		at := aws.ToString(r.cluster(t).Version)
		list, err := r.ListUpdates(t.Context(), &awseks.ListUpdatesInput{Name: aws.String("blue")})
		if err != nil {
			rt.Fatal(err)
		}
		var updates []*types.Update
		for _, id := range list.UpdateIds {
			updates = append(updates, r.update(t, id, ""))
		}
		slices.SortFunc(updates, func(a, b *types.Update) int { return a.CreatedAt.Compare(*b.CreatedAt) })
		for i, u := range updates {
			if want := fmt.Sprintf("1.%d", 32+i); *u.Params[0].Value != want || u.Status != types.UpdateStatusSuccessful {
				rt.Fatalf("update %d is to %s (%s), want %s", i, *u.Params[0].Value, u.Status, want)
			}
			if i > 0 && u.CreatedAt.Sub(*updates[i-1].CreatedAt) < 10*time.Minute {
				rt.Fatalf("updates %d and %d overlap", i-1, i)
			}
		}
		if want := fmt.Sprintf("1.%d", 31+len(updates)); at != want {
			rt.Fatalf("at %s after %d updates", at, len(updates))
		}
	})
}

// Whatever is asked in whatever order: of a cluster's Fargate profiles at most one comes or
// goes, there are never more than the account allows, and the world knows those that are
// active.
func TestProfilesNeverComeTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r, w := newWorld(t, func(o *eks.Options) { o.MaxProfiles = 3 })
		known := "profiles of green: []"
		for n := range rapid.IntRange(1, 20).Draw(rt, "steps") {
			name := fmt.Sprintf("p%d", rapid.IntRange(0, 4).Draw(rt, "profile"))
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				in := profileOf(name)
				in.ClientRequestToken = aws.String(fmt.Sprint("token-", n))
				_, _ = r.CreateFargateProfile(t.Context(), in)
			case 1:
				_, _ = r.DeleteFargateProfile(t.Context(), &awseks.DeleteFargateProfileInput{ClusterName: aws.String("green"), FargateProfileName: &name})
			case 2:
				r.clock.Step(time.Duration(rapid.IntRange(1, 90).Draw(rt, "seconds")) * time.Second)
			}
			list, err := r.ListFargateProfiles(t.Context(), &awseks.ListFargateProfilesInput{ClusterName: aws.String("green")})
			if err != nil {
				rt.Fatal(err)
			}
			var active, moving []string
			for _, p := range list.FargateProfileNames {
				if r.profileStatus(t, p) == "ACTIVE" {
					active = append(active, p)
				} else {
					moving = append(moving, p)
				}
			}
			if len(moving) > 1 || len(list.FargateProfileNames) > 3 {
				rt.Fatalf("moving are %v of %v", moving, list.FargateProfileNames)
			}
			for _, told := range w.told() {
				if strings.HasPrefix(told, "profiles of") {
					known = told
				}
			}
			if want := fmt.Sprintf("profiles of green: %v", active); known != want {
				rt.Fatalf("the world knows %q, want %q", known, want)
			}
		}
	})
}
