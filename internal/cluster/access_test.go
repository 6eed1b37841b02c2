package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
)

// answering has the API server answer reviews: status to a question, me to who asks.
func answering(w *world, status func(authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus, me string) {
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.api.t.Error(err)
		}
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			w.api.t.Errorf("%s: %v", body, err)
		}
		var out runtime.Object
		switch in := obj.(type) {
		case *authorizationv1.SelfSubjectAccessReview:
			in.Status = status(*in.Spec.ResourceAttributes)
			out = in
		case *authenticationv1.SelfSubjectReview:
			in.Status.UserInfo.Username = me
			out = in
		}
		rw.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		rw.WriteHeader(http.StatusCreated)
		_, _ = rw.Write(w.api.encode(out))
		return true
	}
}

func TestMayAnswersInTheOrderOfTheQuestions(t *testing.T) {
	w := newWorld(t)
	answering(w, func(a authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
		s := authorizationv1.SubjectAccessReviewStatus{Allowed: a.Namespace != "shop-3" && a.Name != "other" && a.Subresource == "eviction"}
		if a.Namespace == "shop-3" || a.Namespace == "shop-5" {
			s.EvaluationError = "no connection"
		}
		return s
	}, "")
	c := w.open(t)
	var questions []cluster.Question
	var want []cluster.Answer
	for i := range 20 {
		questions = append(questions, cluster.Question{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: fmt.Sprintf("shop-%d", i)})
		want = append(want, cluster.Answer{Allowed: i != 3})
	}
	want[3].Unsure = "no connection" // of shop-5 another authorizer was sure
	questions = append(questions, cluster.Question{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: "other"}, cluster.Question{Verb: "list", Resource: "nodes"})
	want = append(want, cluster.Answer{}, cluster.Answer{})
	w.api.requests()
	got, err := cluster.May(context.Background(), c.Kubernetes(), questions)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := len(w.api.requests()); n != len(questions) {
		t.Errorf("%d requests for %d questions", n, len(questions))
	}
	if got, err := cluster.May(context.Background(), c.Kubernetes(), nil); err != nil || len(got) != 0 {
		t.Errorf("nothing asked: %v, %v", got, err)
	}
}

// The first question that cannot be asked ends it: what is not asked is not allowed. The
// very first one is asked alone.
func TestMayEndsWithTheFirstError(t *testing.T) {
	w := newWorld(t)
	var asked, good atomic.Int32
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		if asked.Add(1) <= good.Load() {
			return false
		}
		status(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
		return true
	}
	c := w.open(t)
	questions := make([]cluster.Question, 100)
	for i := range questions {
		questions[i] = cluster.Question{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "shop"}
	}
	_, err := cluster.May(context.Background(), c.Kubernetes(), questions)
	if err == nil || !strings.Contains(err.Error(), "patch deployments in shop") || asked.Load() != 1 {
		t.Errorf("after %d questions: %v", asked.Load(), err)
	}
	asked.Store(0)
	good.Store(3)
	_, err = cluster.May(context.Background(), c.Kubernetes(), questions)
	if err == nil || !strings.Contains(err.Error(), "patch deployments in shop") || int(asked.Load()) == len(questions) {
		t.Errorf("after %d questions: %v", asked.Load(), err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	over := errors.New("over")
	cancel(over)
	if _, err := cluster.May(ctx, c.Kubernetes(), questions); !errors.Is(err, over) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := cluster.Caller(context.Background(), c.Kubernetes()); err == nil || !strings.Contains(err.Error(), "who calls") {
		t.Errorf("who: %v", err)
	}
}

func TestCaller(t *testing.T) {
	w := newWorld(t)
	const me = "arn:aws:sts::111122223333:assumed-role/ops/jane"
	answering(w, nil, me)
	if got, err := cluster.Caller(context.Background(), w.open(t).Kubernetes()); err != nil || got != me {
		t.Errorf("%q, %v", got, err)
	}
}

// Who asks about itself changes nothing: no lock is needed for it.
func TestQuestionsAskNoGuard(t *testing.T) {
	w := newWorld(t)
	answering(w, func(authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	}, "me")
	k := w.open(t).Kubernetes()
	guard, asked := held(0, time.Minute)
	ctx := aws.WithGuard(context.Background(), guard)
	_, err := cluster.May(ctx, k, []cluster.Question{{Verb: "list", Resource: "pods"}})
	_, whoErr := cluster.Caller(ctx, k)
	if err := errors.Join(err, whoErr); err != nil || *asked != 0 {
		t.Errorf("%v, the guard was asked %d times", err, *asked)
	}
}

func TestQuestionsInWords(t *testing.T) {
	for want, q := range map[string]cluster.Question{
		"create pods/eviction in shop": {Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "shop"},
		"list nodes":                   {Verb: "list", Resource: "nodes"},
	} {
		if q.String() != want {
			t.Errorf("%q, want %q", q, want)
		}
	}
}
