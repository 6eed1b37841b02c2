package servicequotas

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// target is what X-Amz-Target begins with, mime the content type of AWS JSON 1.1
// (https://smithy.io/2.0/aws/protocols/aws-json-1_1-protocol.html).
const (
	target = "ServiceQuotasV20190624."
	mime   = "application/x-amz-json-1.1"
)

// operations are the operations of the API that the sandbox has.
var operations = map[string]func(*Service, input) (any, *wire.APIError){
	"GetServiceQuota":             (*Service).getServiceQuota,
	"GetAWSDefaultServiceQuota":   (*Service).getDefault,
	"ListServiceQuotas":           (*Service).listServiceQuotas,
	"ListAWSDefaultServiceQuotas": (*Service).listDefaults,
}

// input is what these operations take.
type input struct {
	ServiceCode, QuotaCode, NextToken string
	MaxResults                        *int
}

// statuses are those of the API's model, for errors that name none.
var statuses = map[string]int{
	"AccessDeniedException": 403, "NoSuchResourceException": 404, "TooManyRequestsException": 429, "ServiceException": 500,
	"ServiceUnavailableException": 503,
}

func missing(message string) *wire.APIError {
	return &wire.APIError{Status: statuses["NoSuchResourceException"], Code: "NoSuchResourceException", Message: message}
}

func illegal(message string) *wire.APIError {
	return &wire.APIError{Status: http.StatusBadRequest, Code: "IllegalArgumentException", Message: message}
}

func operation(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("X-Amz-Target"), target)
}

// Classify implements wire.Service: servicequotas:GetServiceQuota and so on; the object is
// the quota as service/code.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call {
	c := wire.Call{Name: "servicequotas:" + operation(r), Changing: operations[operation(r)] == nil}
	var in input
	if json.Unmarshal(body, &in) == nil {
		c.Object = strings.Trim(in.ServiceCode+"/"+in.QuotaCode, "/")
	}
	return c
}

// WriteFault implements wire.Service; a status that the fault does not give is that of the
// API's model for its error.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	e := &wire.APIError{Status: f.Status, Code: f.Error, Message: f.Message}
	if e.Code == "" {
		e.Code = "ServiceException"
		for code, status := range statuses {
			if status == e.Status {
				e.Code = code
			}
		}
	}
	if e.Status == 0 {
		e.Status = http.StatusBadRequest
		if status := statuses[e.Code]; status != 0 {
			e.Status = status
		}
	}
	if e.Message == "" {
		e.Message = wire.FaultMessage(e.Code)
	}
	writeError(w, e)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	result, apiErr := s.do(r, body)
	if apiErr != nil {
		wire.Note(r.Context(), "error", apiErr.Error())
		writeError(w, apiErr)
		return
	}
	write(w, http.StatusOK, result)
}

func (s *Service) do(r *http.Request, body []byte) (any, *wire.APIError) {
	// Signatures are made by wall clocks, whatever drives the service.
	key, err := s.opts.Keys.Check(r, body, "servicequotas", time.Now())
	if err != nil {
		return nil, authError(err)
	}
	wire.NoteCaller(r.Context(), key.ARN)
	serve := operations[operation(r)]
	if serve == nil {
		return nil, &wire.APIError{Status: http.StatusBadRequest, Code: "UnknownOperationException", Message: "The requested operation is not part of the sandbox"}
	}
	var in input
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, &wire.APIError{Status: http.StatusBadRequest, Code: "SerializationException", Message: err.Error()}
	}
	return serve(s, in)
}

// authError says an error of Keys.Check in the codes that JSON services use.
func authError(err error) *wire.APIError {
	e := &wire.APIError{Status: http.StatusBadRequest}
	e.Code, e.Message = wire.JSONAuthError(err)
	return e
}

func writeError(w http.ResponseWriter, e *wire.APIError) {
	write(w, e.Status, map[string]string{"__type": e.Code, "Message": e.Message})
}

func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mime)
	w.Header().Set("X-Amzn-Requestid", uuid.NewString())
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// cut is one page of a list.
func cut[T any](all []T, token string, size *int) ([]T, string, *wire.APIError) {
	n := 100
	if size != nil {
		if n = *size; n < 1 || n > 100 {
			return nil, "", illegal("MaxResults must be between 1 and 100")
		}
	}
	part, next, ok := wire.Page(all, token, n)
	if !ok {
		return nil, "", &wire.APIError{Status: http.StatusBadRequest, Code: "InvalidPaginationTokenException", Message: "Invalid token"}
	}
	return part, next, nil
}
