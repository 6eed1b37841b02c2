package ec2

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// operations are the actions of the API that the sandbox has.
var operations = map[string]func(*Service, *request) (any, *wire.APIError){
	"DescribeSubnets": (*Service).describeSubnets,
}

type request struct {
	params url.Values
	id     string
}

// list is a list of the request: EC2 writes Name.1, Name.2, without the member of the
// query protocol.
func (r *request) list(name string) (vs []string) {
	for i := 1; ; i++ {
		v, ok := r.params[name+"."+strconv.Itoa(i)]
		if !ok {
			return vs
		}
		vs = append(vs, v[0])
	}
}

type filter struct {
	name   string
	values []string
}

func (r *request) filters() (fs []filter) {
	for i := 1; ; i++ {
		at := "Filter." + strconv.Itoa(i)
		name, ok := r.params[at+".Name"]
		if !ok {
			return fs
		}
		fs = append(fs, filter{name[0], r.list(at + ".Value")})
	}
}

// Classify implements wire.Service: ec2:DescribeSubnets; the object is the first subnet,
// or value of a filter, that the call names.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call {
	params, _ := wire.Params(r, body)
	c := wire.Call{Name: "ec2:" + params.Get("Action"), Object: params.Get("SubnetId.1")}
	if _, known := operations[params.Get("Action")]; !known {
		c.Changing = true // nobody knows what it would do
	}
	if c.Object == "" {
		c.Object = params.Get("Filter.1.Value.1")
	}
	return c
}

// WriteFault implements wire.Service. Without a status an error gets 401 or 403 when it
// is about credentials, 503 when EC2 throttles, and 400 otherwise.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	e := wire.QueryFault(f)
	if f.Status == 0 {
		switch f.Error {
		case "AuthFailure":
			e.Status = http.StatusUnauthorized
		case "UnauthorizedOperation", "Blocked":
			e.Status = http.StatusForbidden
		case "RequestLimitExceeded", "Unavailable":
			e.Status = http.StatusServiceUnavailable
		}
	}
	writeError(w, uuid.NewString(), e)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	id := uuid.NewString()
	result, apiErr := s.do(r, body, id)
	if apiErr != nil {
		wire.Note(r.Context(), "error", apiErr.Error())
		writeError(w, id, apiErr)
		return
	}
	write(w, http.StatusOK, id, result)
}

func (s *Service) do(r *http.Request, body []byte, id string) (any, *wire.APIError) {
	// Signatures are made by wall clocks, whatever drives the service.
	key, err := s.opts.Keys.Check(r, body, "ec2", time.Now())
	if err != nil {
		return nil, authError(err)
	}
	wire.NoteCaller(r.Context(), key.ARN)
	params, err := wire.Params(r, body)
	if err != nil {
		return nil, wire.AsAPIError(err)
	}
	serve := operations[params.Get("Action")]
	if serve == nil {
		return nil, wire.Errorf("InvalidAction", "The action %s is not valid for this web service.", params.Get("Action"))
	}
	if params.Get("DryRun") == "true" {
		return nil, &wire.APIError{Status: http.StatusPreconditionFailed, Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set."}
	}
	return serve(s, &request{params: params, id: id})
}

// authError says an error of Keys.Check in EC2's own codes ("Error codes" in the EC2 API
// reference).
func authError(err error) *wire.APIError {
	if errors.Is(err, wire.ErrExpired) {
		return wire.Errorf("RequestExpired", "Request has expired.")
	}
	return &wire.APIError{Status: http.StatusUnauthorized, Code: "AuthFailure", Message: "AWS was not able to validate the provided access credentials"}
}

// errorXML is an error in EC2's own form, which is not that of the other query services.
type errorXML struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

func writeError(w http.ResponseWriter, id string, e *wire.APIError) {
	write(w, e.Status, id, errorXML{Code: e.Code, Message: e.Message, RequestID: id})
}

func write(w http.ResponseWriter, status int, id string, v any) {
	document, err := xml.Marshal(v)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	wire.WriteXML(w, status, id, document)
}
