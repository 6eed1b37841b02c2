// Package elbv2 is the sandbox's Elastic Load Balancing v2: application load
// balancers with weighted target groups, over the query protocol of 2015-12-01.
package elbv2

import (
	"net/http"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Options says what the service stands on.
type Options struct {
	Region, Account string
	Keys            *wire.Keys
	// Targets answers the targets registered with a group and whether each would
	// pass its health check. It is called without locks held.
	Targets func(targetGroupARN string) []Target
	// HealthDelay is how long a target is initial once its group is in use, and
	// how long it takes to notice that a target turned ready or unready.
	HealthDelay time.Duration
	// Draining is how long a target that left stays draining.
	Draining time.Duration
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Target is one registered target as the world knows it.
type Target struct {
	// ID is the address of an ip target.
	ID    string
	Port  int
	Zone  string
	Ready bool
}

// LoadBalancer is one load balancer to seed.
type LoadBalancer struct {
	// ARN, DNSName and CanonicalHostedZoneID are made from Name when empty.
	Name, ARN, DNSName, CanonicalHostedZoneID string
	// Type is application (default) or network; Scheme internet-facing (default)
	// or internal.
	Type, Scheme   string
	VPC            string
	Zones          []Zone
	SecurityGroups []string
	CreatedAt      time.Time
	Tags           map[string]string
	Listeners      []Listener
}

// Zone is an availability zone of a load balancer.
type Zone struct{ Name, Subnet string }

// Listener is one listener with its rules; its default actions become the rule
// of priority default.
type Listener struct {
	// ARN is made when empty.
	ARN string
	// Protocol is HTTP (default), HTTPS, TCP ...
	Protocol       string
	Port           int
	SSLPolicy      string
	Certificates   []string
	DefaultActions []Action
	Rules          []Rule
	Tags           map[string]string
}

// Rule is one rule of a listener.
type Rule struct {
	ARN        string
	Priority   int
	Conditions []Condition
	Actions    []Action
	Tags       map[string]string
}

// Condition is one condition; Field is host-header, path-pattern, http-header,
// http-request-method or source-ip.
type Condition struct {
	Field string
	// HeaderName is that of an http-header condition.
	HeaderName string
	Values     []string
}

// Action is one action, by the API's own names and with all its members, so that
// what a client preserves can be told from what it lost. Fields that do not belong
// to Type are nil.
type Action struct {
	// Type is forward, fixed-response, redirect, authenticate-oidc,
	// authenticate-cognito or jwt-validation.
	Type  string
	Order *int32
	// TargetGroupArn stands alone for a forward to one group, or beside
	// ForwardConfig as the API echoes it.
	TargetGroupArn            string
	ForwardConfig             *ForwardConfig
	FixedResponseConfig       *FixedResponseConfig
	RedirectConfig            *RedirectConfig
	AuthenticateOidcConfig    *AuthenticateOidcConfig
	AuthenticateCognitoConfig *AuthenticateCognitoConfig
	JwtValidationConfig       *JwtValidationConfig
}

// ForwardConfig shares requests out among target groups.
type ForwardConfig struct {
	TargetGroups                []TargetGroupTuple
	TargetGroupStickinessConfig *StickinessConfig
}

// TargetGroupTuple is one group and its weight, 0 to 999; nil reads as 1.
type TargetGroupTuple struct {
	TargetGroupArn string
	Weight         *int32
}

// StickinessConfig binds a client to the group it met first.
type StickinessConfig struct {
	Enabled         *bool
	DurationSeconds *int32
}

// FixedResponseConfig answers without a target.
type FixedResponseConfig struct {
	ContentType, MessageBody *string
	StatusCode               string
}

// RedirectConfig sends the client elsewhere.
type RedirectConfig struct {
	Host, Path, Port, Protocol, Query *string
	StatusCode                        string
}

// AuthenticateOidcConfig asks an OpenID provider first.
type AuthenticateOidcConfig struct {
	AuthenticationRequestExtraParams map[string]string
	AuthorizationEndpoint, ClientId  string
	ClientSecret                     *string
	Issuer                           string
	OnUnauthenticatedRequest         *string
	Scope, SessionCookieName         *string
	SessionTimeout                   *int64
	TokenEndpoint                    string
	UseExistingClientSecret          *bool
	UserInfoEndpoint                 string
}

// AuthenticateCognitoConfig asks a Cognito user pool first.
type AuthenticateCognitoConfig struct {
	AuthenticationRequestExtraParams              map[string]string
	OnUnauthenticatedRequest                      *string
	Scope, SessionCookieName                      *string
	SessionTimeout                                *int64
	UserPoolArn, UserPoolClientId, UserPoolDomain string
}

// JwtValidationConfig lets only requests with a valid token through.
type JwtValidationConfig struct {
	AdditionalClaims     []JwtClaim
	Issuer, JwksEndpoint string
}

// JwtClaim is one claim that a token must have.
type JwtClaim struct {
	Format, Name string
	Values       []string
}

// TargetGroup is one target group to seed.
type TargetGroup struct {
	// ARN is made from Name when empty.
	Name, ARN string
	// Protocol is HTTP (default); TargetType ip (default).
	Protocol   string
	Port       int
	TargetType string
	VPC        string
	HealthPath string
	Tags       map[string]string
}

// Health is the state of one target as DescribeTargetHealth shows it.
type Health struct {
	Target
	// State is initial, healthy, unhealthy, unused or draining; Reason its code.
	State, Reason, Description string
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options
}

// New makes a service without load balancers.
func New(o Options) *Service { return &Service{opts: o} }

var _ wire.Service = (*Service)(nil)

// AddTargetGroup seeds a target group and answers its ARN.
func (s *Service) AddTargetGroup(g TargetGroup) (arn string, err error) { return "", nil }

// AddLoadBalancer seeds a load balancer with listeners and rules, whose target
// groups must be there already, and answers it with every ARN and name filled in.
// It holds actions to the rules that ModifyListener has.
func (s *Service) AddLoadBalancer(lb LoadBalancer) (LoadBalancer, error) { return lb, nil }

// LoadBalancers are all load balancers as they are now, sorted by name.
func (s *Service) LoadBalancers() []LoadBalancer { return nil }

// TargetGroups are all target groups, sorted by name.
func (s *Service) TargetGroups() []TargetGroup { return nil }

// Route answers the actions that a listener takes for a request: those of the first
// rule by priority all of whose conditions match, or the default actions. False
// when there is no such listener.
func (s *Service) Route(listenerARN string, r *http.Request) ([]Action, bool) { return nil, false }

// Health is the health of every target of a group, drained ones included.
func (s *Service) Health(targetGroupARN string) []Health { return nil }

// Snapshot is the canonical state, made for JSON: load balancers by name with
// listeners, rules, actions and weights; no ids or times.
func (s *Service) Snapshot() any { return nil }

// Classify implements wire.Service.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call { return wire.Call{} }

// WriteFault implements wire.Service.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {}
