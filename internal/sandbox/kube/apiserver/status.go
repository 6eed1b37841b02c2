package apiserver

import (
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeError answers with the status of an error, in the form the client accepts.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	writeStatus(w, r, api.Status())
}

func writeStatus(w http.ResponseWriter, r *http.Request, s metav1.Status) {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	a, err := negotiate(r, nil, false)
	if err != nil {
		a = fallback
	}
	a.write(w, int(s.Code), &s)
}

// reasons maps the reasons of a status to their HTTP codes.
var reasons = map[metav1.StatusReason]int32{
	metav1.StatusReasonUnauthorized:         http.StatusUnauthorized,
	metav1.StatusReasonForbidden:            http.StatusForbidden,
	metav1.StatusReasonNotFound:             http.StatusNotFound,
	metav1.StatusReasonAlreadyExists:        http.StatusConflict,
	metav1.StatusReasonConflict:             http.StatusConflict,
	metav1.StatusReasonGone:                 http.StatusGone,
	metav1.StatusReasonExpired:              http.StatusGone,
	metav1.StatusReasonInvalid:              http.StatusUnprocessableEntity,
	metav1.StatusReasonServerTimeout:        http.StatusInternalServerError,
	metav1.StatusReasonTimeout:              http.StatusGatewayTimeout,
	metav1.StatusReasonTooManyRequests:      http.StatusTooManyRequests,
	metav1.StatusReasonBadRequest:           http.StatusBadRequest,
	metav1.StatusReasonInternalError:        http.StatusInternalServerError,
	metav1.StatusReasonServiceUnavailable:   http.StatusServiceUnavailable,
	metav1.StatusReasonMethodNotAllowed:     http.StatusMethodNotAllowed,
	metav1.StatusReasonUnsupportedMediaType: http.StatusUnsupportedMediaType,
}

// FaultStatus is the status that an injected fault is answered with. code may be 0 when
// the reason implies it, and the reason empty when the code does.
func FaultStatus(reason string, code int, message string) metav1.Status {
	s := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReason(reason), Code: int32(code), Message: message}
	if s.Code == 0 {
		s.Code = reasons[s.Reason]
	}
	if s.Code == 0 {
		s.Code = http.StatusServiceUnavailable
	}
	if s.Reason == "" {
		for r, c := range reasons {
			if c == s.Code && r != metav1.StatusReasonAlreadyExists && (s.Reason == "" || r < s.Reason) {
				s.Reason = r
			}
		}
	}
	if s.Message == "" {
		s.Message = defaultMessage(s)
	}
	if s.Reason == metav1.StatusReasonTooManyRequests {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: 1} // as API priority and fairness answers
	}
	return s
}

func defaultMessage(s metav1.Status) string {
	switch s.Code {
	case http.StatusTooManyRequests:
		return "Too many requests, please try again later."
	case http.StatusServiceUnavailable:
		return "the server is currently unable to handle the request"
	case http.StatusUnauthorized:
		return "Unauthorized"
	}
	return http.StatusText(int(s.Code))
}
