package eks_test

import (
	"fmt"
	"slices"
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
