// Package hooks are the two services that EKS runs beside a control plane and that the
// API server asks: the IAM authenticator and the admission webhook of Fargate.
package hooks

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// FargateWebhook is the name that EKS gives to Fargate's webhook.
const FargateWebhook = "0500-amazon-eks-fargate-mutation.amazonaws.com"

// Options say what the services answer.
type Options struct {
	// Certificate is what they serve with.
	Certificate tls.Certificate
	// Authenticate resolves a bearer token; nil knows none.
	Authenticate func(bearer string) (user string, groups []string, err error)
	// Mutate changes a pod that is about to be created.
	Mutate func(*corev1.Pod)
}

// Server answers the API server's questions on loopback.
type Server struct {
	o       Options
	url     string
	server  *http.Server
	done    chan struct{}
	mutated atomic.Int64
}

// Start serves until Close.
func Start(o Options) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the API server's webhooks: %w", err)
	}
	s := &Server{o: o, url: "https://" + l.Addr().String(), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /authenticate", answer(s.authenticate))
	mux.HandleFunc("POST /mutate", answer(s.mutate))
	s.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{o.Certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		defer close(s.done)
		_ = s.server.ServeTLS(l, "", "") // ends with ErrServerClosed
	}()
	return s, nil
}

// Close ends the service and waits for it.
func (s *Server) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

// TokenURL is where the API server sends TokenReviews to.
func (s *Server) TokenURL() string { return s.url + "/authenticate" }

// Mutated is how many pods the webhook was asked about.
func (s *Server) Mutated() int64 { return s.mutated.Load() }

// Configuration registers the webhook with the API server; ca (PEM) vouches for it.
func (s *Server) Configuration(ca []byte) *registrationv1.MutatingWebhookConfiguration {
	return &registrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: FargateWebhook},
		Webhooks: []registrationv1.MutatingWebhook{{
			Name:         FargateWebhook,
			ClientConfig: registrationv1.WebhookClientConfig{URL: ptr.To(s.url + "/mutate"), CABundle: ca},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			// A pod that slips by would wait for a scheduler that is not there.
			FailurePolicy: ptr.To(registrationv1.Fail), MatchPolicy: ptr.To(registrationv1.Equivalent),
			SideEffects: ptr.To(registrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To[int32](10),
		}},
	}
}

// answer decodes one review, has it answered in place, and sends it back.
func answer[R any](f func(context.Context, *R) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review R
		if err := json.NewDecoder(io.LimitReader(r.Body, 8<<20)).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := f(r.Context(), &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the API server may have given up
	}
}

func (s *Server) authenticate(_ context.Context, review *authenticationv1.TokenReview) error {
	review.Status = authenticationv1.TokenReviewStatus{}
	if s.o.Authenticate == nil {
		return nil
	}
	user, groups, err := s.o.Authenticate(review.Spec.Token)
	if err != nil {
		review.Status.Error = err.Error()
		return nil
	}
	review.Status.Authenticated = true
	review.Status.User = authenticationv1.UserInfo{Username: user, Groups: groups}
	return nil
}

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (s *Server) mutate(_ context.Context, review *admissionv1.AdmissionReview) error {
	if review.Request == nil {
		return fmt.Errorf("an AdmissionReview without a request")
	}
	var pod corev1.Pod
	if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
		return fmt.Errorf("decode the pod: %w", err)
	}
	pod.Namespace = review.Request.Namespace // controllers leave it to the path
	old := pod.DeepCopy()
	s.o.Mutate(&pod)
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if ops := difference(old, &pod); len(ops) > 0 {
		patch, err := json.Marshal(ops)
		if err != nil {
			return fmt.Errorf("encode the patch of the pod: %w", err)
		}
		response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	review.Request, review.Response = nil, response
	s.mutated.Add(1)
	return nil
}

// difference is what Fargate changes of a pod, as a patch.
func difference(old, pod *corev1.Pod) []operation {
	var ops []operation
	add := func(changed bool, path string, value any) {
		if changed {
			ops = append(ops, operation{"add", path, value}) // replaces what is there
		}
	}
	add(!maps.Equal(old.Labels, pod.Labels), "/metadata/labels", pod.Labels)
	add(!maps.Equal(old.Annotations, pod.Annotations), "/metadata/annotations", pod.Annotations)
	add(old.Spec.SchedulerName != pod.Spec.SchedulerName, "/spec/schedulerName", pod.Spec.SchedulerName)
	add(old.Spec.PriorityClassName != pod.Spec.PriorityClassName, "/spec/priorityClassName", pod.Spec.PriorityClassName)
	add(!ptr.Equal(old.Spec.Priority, pod.Spec.Priority), "/spec/priority", pod.Spec.Priority)
	return ops
}
