package eks

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Error is an answer that is not a result. Its type travels in the header
// x-amzn-errortype only; the body has the members of the modeled exceptions, null
// where there is nothing to say.
type Error struct {
	Status                             int
	Code, Message                      string
	Cluster, Nodegroup, Addon, Profile string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (c *cluster) invalid(format string, args ...any) *Error {
	return &Error{Status: 400, Code: "InvalidParameterException", Message: fmt.Sprintf(format, args...), Cluster: c.Name}
}

func (c *cluster) refused(format string, args ...any) *Error {
	return &Error{Status: 400, Code: "InvalidRequestException", Message: fmt.Sprintf(format, args...), Cluster: c.Name}
}

func (c *cluster) inUse(format string, args ...any) *Error {
	return &Error{Status: 409, Code: "ResourceInUseException", Message: fmt.Sprintf(format, args...), Cluster: c.Name}
}

func (c *cluster) missing(format string, args ...any) *Error {
	return &Error{Status: 404, Code: "ResourceNotFoundException", Message: fmt.Sprintf(format, args...), Cluster: c.Name}
}

// cluster is the named cluster. mu is held.
func (s *Service) cluster(name string) (*cluster, *Error) {
	if c := s.clusters[name]; c != nil {
		return c, nil
	}
	return nil, (&cluster{Cluster: Cluster{Name: name}}).missing("No cluster found for name: %s.", name)
}

func (c *cluster) addon(name string) (*addon, *Error) {
	if a := c.addons[name]; a != nil {
		return a, nil
	}
	e := c.missing("No addon: %s found in cluster: %s", name, c.Name)
	e.Addon = name
	return nil, e
}

// members are the members of each exception beside its message, from the API's
// model (schemas of the SDK module); others have none.
var members = map[string][]string{
	"ClientException":           {"clusterName", "nodegroupName", "addonName", "subscriptionId"},
	"ServerException":           {"clusterName", "nodegroupName", "addonName", "subscriptionId"},
	"InvalidRequestException":   {"clusterName", "nodegroupName", "addonName", "subscriptionId"},
	"InvalidParameterException": {"clusterName", "nodegroupName", "fargateProfileName", "addonName", "subscriptionId"},
	"ResourceNotFoundException": {"clusterName", "nodegroupName", "fargateProfileName", "addonName", "subscriptionId"},
	"ResourceInUseException":    {"clusterName", "nodegroupName", "addonName"},
	"InvalidStateException":     {"clusterName"},
	"ThrottlingException":       {"clusterName"},

	"ResourceLimitExceededException": {"clusterName", "nodegroupName", "subscriptionId"},
}

// statuses are those of the API's model, for faults that name none.
var statuses = map[string]int{
	"AccessDeniedException": 403, "ResourceNotFoundException": 404, "ResourceInUseException": 409,
	"ResourcePropagationDelayException": 428, "ThrottlingException": 429, "TooManyRequestsException": 429,
	"ServerException": 500, "InternalFailure": 500, "ServiceUnavailableException": 503,
	"ExpiredTokenException": 403, "UnrecognizedClientException": 403, "InvalidSignatureException": 403,
	"MissingAuthenticationTokenException": 403,
}

func (e *Error) write(w http.ResponseWriter) {
	body := map[string]any{"message": e.Message}
	values := map[string]string{
		"clusterName": e.Cluster, "nodegroupName": e.Nodegroup, "addonName": e.Addon, "fargateProfileName": e.Profile,
	}
	for _, name := range members[e.Code] {
		body[name] = nil
		if v := values[name]; v != "" {
			body[name] = v
		}
	}
	w.Header().Set("X-Amzn-Errortype", e.Code)
	writeJSON(w, e.Status, body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Requestid", uuid.NewString())
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// authError says an error of Keys.Check in the codes that JSON services use.
func authError(err error) *Error {
	e := &Error{Status: 403}
	e.Code, e.Message = wire.JSONAuthError(err)
	return e
}

// WriteFault implements wire.Service; a status that the fault does not give is that
// of the API's model for its error.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	e := &Error{Status: f.Status, Code: f.Error, Message: f.Message}
	if e.Status == 0 {
		e.Status = 400
		if status := statuses[e.Code]; status != 0 {
			e.Status = status
		}
	}
	if e.Code == "" {
		e.Code = "ServerException"
		for code, status := range statuses {
			if status == e.Status && members[code] != nil {
				e.Code = code
			}
		}
	}
	if e.Message == "" {
		e.Message = wire.FaultMessage(e.Code)
	}
	if at, ok := match(r); ok {
		e.Cluster = at.vars["cluster"]
	}
	e.write(w)
}
