// Package sts is the sandbox's AWS Security Token Service: GetCallerIdentity and
// AssumeRole over the query protocol, and the check of presigned EKS tokens.
package sts

import (
	"bytes"
	"net/http"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

const xmlns = "https://sts.amazonaws.com/doc/2011-06-15/"

// Options says what the service stands on.
type Options struct {
	// Keys are the credentials of the sandbox; AssumeRole adds to them.
	Keys *wire.Keys
	// Account is the account of roles that may be assumed (default wire.Account).
	Account string
	// Roles are the ARNs that may be assumed; nil means every role of Account.
	Roles []string
	// Hosts are the host:port names under which this service is served. A presigned
	// token for another host is refused; empty accepts any host.
	Hosts []string
	// Clusters are the names of the clusters that tokens can be for. A token does
	// not carry the name, it is only signed over: Verify tries each.
	Clusters func() []string
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options
}

// New makes the service.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Account == "" {
		o.Account = wire.Account
	}
	if o.Keys == nil {
		o.Keys = wire.NewKeys()
	}
	if o.Clusters == nil {
		o.Clusters = func() []string { return nil }
	}
	return &Service{opts: o}
}

var _ wire.Service = (*Service)(nil)

// Classify implements wire.Service: sts:GetCallerIdentity and so on.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call {
	params, _ := wire.Params(r, body)
	return wire.Call{Name: "sts:" + params.Get("Action"), Object: params.Get("RoleArn")}
}

// WriteFault implements wire.Service. Without a status an error gets 403 when it
// is about credentials, 500 when it is about the service, and 400 otherwise.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	wire.WriteXMLError(w, xmlns, wire.QueryFault(f))
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wire.ServeQuery(w, r, xmlns, s.do)
}

func (s *Service) do(r *http.Request, body []byte) (result any, operation string, _ *wire.APIError) {
	key, err := s.opts.Keys.Check(r, body, "sts", s.opts.Now())
	if err != nil {
		return nil, "", wire.QueryAuthError(err)
	}
	wire.NoteCaller(r.Context(), key.ARN)
	params, err := wire.Params(r, bytes.Clone(body))
	if err != nil {
		return nil, "", wire.AsAPIError(err)
	}
	operation = params.Get("Action")
	switch operation {
	case "GetCallerIdentity":
		return identity{Account: s.opts.Account, Arn: key.ARN, UserId: key.UserID}, operation, nil
	case "AssumeRole":
		var in assumeRole
		if err := wire.DecodeQuery(params, &in); err != nil {
			return nil, "", wire.AsAPIError(err)
		}
		out, apiErr := s.assume(key, in)
		return out, operation, apiErr
	}
	return nil, "", wire.Errorf("InvalidAction", "Could not find operation %s for version %s", operation, params.Get("Version"))
}

type identity struct{ Account, Arn, UserId string }
