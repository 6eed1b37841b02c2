package elbv2

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
)

// The answers, member by member as in the API's model of 2015-12-01.

type balancerXML struct {
	LoadBalancerArn, DNSName, CanonicalHostedZoneId string
	CreatedTime                                     time.Time
	LoadBalancerName, Scheme, VpcId                 string
	State                                           struct{ Code string }
	Type                                            string
	AvailabilityZones                               []zoneXML
	SecurityGroups                                  []string
	IpAddressType                                   string
}

type zoneXML struct{ ZoneName, SubnetId string }

type listenerXML struct {
	ListenerArn, LoadBalancerArn string
	Port                         int
	Protocol                     string
	Certificates                 []certificateXML
	SslPolicy                    string
	DefaultActions               []Action
	MutualAuthentication         *struct{ Mode string }
}

type certificateXML struct{ CertificateArn string }

type ruleXML struct {
	RuleArn, Priority string
	Conditions        []conditionXML
	Actions           []Action
	IsDefault         bool
	Transforms        []Transform
}

type conditionXML struct {
	Field                   string
	Values                  []string
	RegexValues             []string
	HostHeaderConfig        *patternsXML
	PathPatternConfig       *patternsXML
	HttpHeaderConfig        *headerXML
	QueryStringConfig       *struct{ Values []QueryPair }
	HttpRequestMethodConfig *struct{ Values []string }
	SourceIpConfig          *struct{ Values []string }
}

type patternsXML struct{ Values, RegexValues []string }

type headerXML struct {
	HttpHeaderName      string
	Values, RegexValues []string
}

type groupXML struct {
	TargetGroupArn, TargetGroupName, Protocol             string
	Port                                                  int
	VpcId, HealthCheckProtocol, HealthCheckPort           string
	HealthCheckEnabled                                    bool
	HealthCheckIntervalSeconds, HealthCheckTimeoutSeconds int
	HealthyThresholdCount, UnhealthyThresholdCount        int
	HealthCheckPath                                       string
	Matcher                                               struct{ HttpCode string }
	LoadBalancerArns                                      []string
	TargetType, ProtocolVersion, IpAddressType            string
}

type targetHealthXML struct {
	Target          targetXML
	HealthCheckPort string
	TargetHealth    struct{ State, Reason, Description string }
}

type targetXML struct {
	Id               string
	Port             int
	AvailabilityZone string
}

type tagsXML struct {
	ResourceArn string
	Tags        []tagXML
}

type tagXML struct{ Key, Value string }

func (b *balancer) xml() balancerXML {
	out := balancerXML{
		LoadBalancerArn: b.ARN, DNSName: b.DNSName, CanonicalHostedZoneId: b.CanonicalHostedZoneID, CreatedTime: b.CreatedAt,
		LoadBalancerName: b.Name, Scheme: b.Scheme, VpcId: b.VPC, Type: b.Type, IpAddressType: "ipv4",
		AvailabilityZones: []zoneXML{}, SecurityGroups: b.SecurityGroups,
	}
	out.State.Code = "active"
	for _, z := range b.Zones {
		out.AvailabilityZones = append(out.AvailabilityZones, zoneXML{z.Name, z.Subnet})
	}
	return out
}

func (l *listener) xml() listenerXML {
	out := listenerXML{
		ListenerArn: l.ARN, LoadBalancerArn: l.balancer.ARN, Port: l.Port, Protocol: l.Protocol,
		SslPolicy: l.SSLPolicy, DefaultActions: shown(l.DefaultActions),
	}
	for _, arn := range l.Certificates {
		out.Certificates = append(out.Certificates, certificateXML{arn})
	}
	if l.Protocol == "HTTPS" {
		out.MutualAuthentication = &struct{ Mode string }{"off"}
	}
	return out
}

func (r *rule) xml() ruleXML {
	out := ruleXML{
		RuleArn: r.ARN, Priority: strconv.Itoa(r.Priority), Actions: shown(r.Actions), Conditions: []conditionXML{}, Transforms: r.Transforms,
	}
	for _, c := range r.Conditions {
		out.Conditions = append(out.Conditions, c.xml())
	}
	return out
}

// defaultRule is the rule that the default actions of a listener make.
func (l *listener) defaultRule() ruleXML {
	return ruleXML{
		RuleArn: l.defaultRuleARN(), Priority: "default", IsDefault: true,
		Conditions: []conditionXML{}, Actions: shown(l.DefaultActions),
	}
}

// xml is a condition with its values both ways, as the API shows them for the two
// oldest kinds.
func (c Condition) xml() conditionXML {
	out := conditionXML{Field: c.Field}
	switch c.Field {
	case "host-header":
		out.Values, out.HostHeaderConfig = c.Values, &patternsXML{c.Values, c.Regex}
	case "path-pattern":
		out.Values, out.PathPatternConfig = c.Values, &patternsXML{c.Values, c.Regex}
	case "http-header":
		out.HttpHeaderConfig = &headerXML{c.HeaderName, c.Values, c.Regex}
	case "http-request-method":
		out.HttpRequestMethodConfig = &struct{ Values []string }{c.Values}
	case "source-ip":
		out.SourceIpConfig = &struct{ Values []string }{c.Values}
	case "query-string":
		out.QueryStringConfig = &struct{ Values []QueryPair }{c.Query}
	}
	return out
}

// condition reads a condition in either way.
func (x conditionXML) condition() Condition {
	c := Condition{Field: x.Field, Values: x.Values, Regex: x.RegexValues}
	for _, p := range []*patternsXML{x.HostHeaderConfig, x.PathPatternConfig} {
		if p != nil {
			c.Values, c.Regex = p.Values, p.RegexValues
		}
	}
	for _, p := range []*struct{ Values []string }{x.HttpRequestMethodConfig, x.SourceIpConfig} {
		if p != nil {
			c.Values = p.Values
		}
	}
	if h := x.HttpHeaderConfig; h != nil {
		c.HeaderName, c.Values, c.Regex = h.HttpHeaderName, h.Values, h.RegexValues
	}
	if q := x.QueryStringConfig; q != nil {
		c.Query = q.Values
	}
	return c
}

func (g *group) xml(balancers []string) groupXML {
	out := groupXML{
		TargetGroupArn: g.ARN, TargetGroupName: g.Name, Protocol: g.Protocol, Port: g.Port, VpcId: g.VPC,
		HealthCheckProtocol: g.Protocol, HealthCheckPort: "traffic-port", HealthCheckEnabled: true,
		HealthCheckIntervalSeconds: 15, HealthCheckTimeoutSeconds: 5, HealthyThresholdCount: 2, UnhealthyThresholdCount: 2,
		HealthCheckPath: g.HealthPath, LoadBalancerArns: balancers, TargetType: g.TargetType,
		ProtocolVersion: "HTTP1", IpAddressType: "ipv4",
	}
	out.Matcher.HttpCode = "200"
	return out
}

func (h Health) xml() targetHealthXML {
	out := targetHealthXML{
		Target: targetXML{h.ID, h.Port, h.Zone}, HealthCheckPort: strconv.Itoa(h.Port),
	}
	out.TargetHealth.State, out.TargetHealth.Reason, out.TargetHealth.Description = h.State, h.Reason, h.Description
	return out
}

func tagList(tags map[string]string) []tagXML {
	out := []tagXML{}
	for _, k := range slices.SortedFunc(maps.Keys(tags), cmp.Compare[string]) {
		out = append(out, tagXML{k, tags[k]})
	}
	return out
}
