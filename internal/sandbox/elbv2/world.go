package elbv2

import "time"

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
	Transforms []Transform
	Tags       map[string]string
}

// Condition is one condition; Field is host-header, path-pattern, http-header,
// http-request-method, query-string or source-ip.
type Condition struct {
	Field string
	// HeaderName is that of an http-header condition.
	HeaderName string
	Values     []string
	// Regex are regular expressions beside or instead of Values.
	Regex []string
	// Query are the pairs of a query-string condition.
	Query []QueryPair
}

// QueryPair matches a query parameter; an empty Key matches any.
type QueryPair struct{ Key, Value string }

// Transform rewrites a request before it is forwarded.
type Transform struct {
	// Type is host-header-rewrite or url-rewrite.
	Type                    string
	HostHeaderRewriteConfig *RewriteConfig
	UrlRewriteConfig        *RewriteConfig
}

// RewriteConfig is the rewrites of a transform.
type RewriteConfig struct{ Rewrites []Rewrite }

// Rewrite replaces what a regular expression matches.
type Rewrite struct{ Regex, Replace string }

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
