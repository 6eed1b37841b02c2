package elbv2

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// operations are the actions of the API that the sandbox has.
var operations = map[string]func(*Service, *request) (any, *wire.APIError){
	"DescribeLoadBalancers": (*Service).describeLoadBalancers,
	"DescribeListeners":     (*Service).describeListeners,
	"DescribeRules":         (*Service).describeRules,
	"DescribeTargetGroups":  (*Service).describeTargetGroups,
	"DescribeTargetHealth":  (*Service).describeTargetHealth,
	"DescribeTags":          (*Service).describeTags,
	"ModifyListener":        (*Service).modifyListener,
	"ModifyRule":            (*Service).modifyRule,
}

type request struct {
	*http.Request
	params url.Values
	now    time.Time
}

// Classify implements wire.Service: elbv2:ModifyListener and so on; the object is
// the ARN that the call is about.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call {
	params, _ := wire.Params(r, body)
	action := params.Get("Action")
	c := wire.Call{Name: "elbv2:" + action, Changing: !strings.HasPrefix(action, "Describe")}
	for _, name := range []string{
		"ListenerArn", "RuleArn", "TargetGroupArn", "LoadBalancerArn", "ListenerArns.member.1", "RuleArns.member.1",
		"TargetGroupArns.member.1", "LoadBalancerArns.member.1", "ResourceArns.member.1", "Names.member.1",
	} {
		if v := params.Get(name); v != "" {
			c.Object = v
			break
		}
	}
	return c
}

// WriteFault implements wire.Service.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	wire.WriteXMLError(w, xmlns, wire.QueryFault(f))
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wire.ServeQuery(w, r, xmlns, s.do)
}

func (s *Service) do(r *http.Request, body []byte) (result any, operation string, _ *wire.APIError) {
	// Signatures are made by wall clocks, whatever drives the service.
	key, err := s.opts.Keys.Check(r, body, "elasticloadbalancing", time.Now())
	if err != nil {
		return nil, "", wire.QueryAuthError(err)
	}
	wire.NoteCaller(r.Context(), key.ARN)
	params, err := wire.Params(r, body)
	if err != nil {
		return nil, "", wire.AsAPIError(err)
	}
	operation = params.Get("Action")
	serve := operations[operation]
	if serve == nil {
		return nil, "", wire.Errorf("InvalidAction", "Could not find operation %s for version %s", operation, params.Get("Version"))
	}
	result, apiErr := serve(s, &request{Request: r, params: params, now: s.opts.Now()})
	return result, operation, apiErr
}

func (r *request) input(into any) *wire.APIError {
	return wire.AsAPIError(wire.DecodeQuery(r.params, into))
}

// cut is one page of a list.
func cut[T any](all []T, marker string, size *int32) ([]T, string, *wire.APIError) {
	n := 400
	if size != nil {
		if n = int(*size); n < 1 || n > 400 {
			return nil, "", wire.Errorf("ValidationError", "Page size must be between 1 and 400")
		}
	}
	part, next, ok := wire.Page(all, marker, n)
	if !ok {
		return nil, "", wire.Errorf("ValidationError", "The marker is invalid")
	}
	return part, next, nil
}
