package cluster

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Question is one thing that the caller may be allowed to do.
type Question struct {
	// Verb is the API's (get, list, watch, create, update, patch, delete). Group is empty
	// for the core's resources.
	Verb, Group, Resource, Subresource string
	// Namespace is where; empty asks about all namespaces at once, or about a resource that
	// is in none.
	Namespace string
	// Name is that of one object; empty asks about all of them.
	Name string
}

// Answer is what an API server says to a Question.
type Answer struct {
	Allowed bool
	// Unsure is why the API server itself cannot tell, since one of its authorizers failed;
	// a real request would be answered with an error then. Empty where it can.
	Unsure string
}

// asking is how many questions are under way at a time.
const asking = 8

// May asks an API server what its caller may do, with one SelfSubjectAccessReview for each
// question, which every authenticated user may create (ClusterRole system:basic-user). The
// answers are in the order of the questions. The first error ends it and is the one
// returned. The first question is asked alone: an API server that is away is waited for
// once, and not by all of them.
//
// A SelfSubjectRulesReview would ask once for a whole namespace, but it tells only what
// authorizers can list: EKS's own, which stands for access policies, can not, and the
// answer is then incomplete where the caller may do everything (kubernetes/kubernetes
// staging/src/k8s.io/api/authorization/v1/types.go, SubjectRulesReviewStatus).
func May(ctx context.Context, k kubernetes.Interface, questions []Question) ([]Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([]Answer, len(questions))
	if len(questions) == 0 {
		return answers, context.Cause(ctx)
	}
	var err error
	if answers[0], err = may(ctx, k, questions[0]); err != nil {
		return answers, cmp.Or(context.Cause(ctx), err)
	}
	next := make(chan int)
	var running sync.WaitGroup
	for range min(asking, len(questions)-1) {
		running.Go(func() {
			for i := range next {
				var err error
				if answers[i], err = may(ctx, k, questions[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 1; i < len(questions); i++ {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	running.Wait()
	return answers, context.Cause(ctx)
}

func may(ctx context.Context, k kubernetes.Interface, q Question) (Answer, error) {
	r, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: q.Namespace, Verb: q.Verb, Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Name: q.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return Answer{}, fmt.Errorf("ask whether %s is allowed: %w", q, err)
	}
	a := Answer{Allowed: r.Status.Allowed}
	if !a.Allowed { // an authorizer may fail and another one allow it
		a.Unsure = r.Status.EvaluationError
	}
	return a, nil
}

// String is the question in words.
func (q Question) String() string {
	out := q.Verb + " " + q.Resource
	if q.Subresource != "" {
		out += "/" + q.Subresource
	}
	if q.Namespace != "" {
		out += " in " + q.Namespace
	}
	return out
}

// Caller is who an API server takes its caller for: on EKS the ARN of the role's session or
// of the user, unless the access entry gives another name. API servers before 1.28 cannot
// be asked.
func Caller(ctx context.Context, k kubernetes.Interface) (string, error) {
	r, err := k.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask who calls: %w", err)
	}
	return r.Status.UserInfo.Username, nil
}
