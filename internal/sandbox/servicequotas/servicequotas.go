// Package servicequotas is the sandbox's Service Quotas, over AWS JSON 1.1: the quotas of
// Fargate, which have a default of AWS and, where the account got one, a value of its own.
package servicequotas

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// The quotas of Fargate ("Service quotas" in the ECS developer guide; the pods of EKS
// count for the On-Demand ones).
const (
	Fargate = "fargate"
	// VCPU is how many vCPUs may run at once.
	VCPU = "L-3032A538"
	// Burst is how many tasks and pods may be launched at once.
	Burst = "L-6BAD92DD"
)

// Options says what the service stands on.
type Options struct {
	Region, Account string
	Keys            *wire.Keys
	// Quotas are there; Catalogue() when nil.
	Quotas []Quota
}

// Quota is one quota of a service.
type Quota struct {
	// Service and Code name it for the API ("fargate", "L-3032A538"), ServiceName and
	// Name for people.
	Service, ServiceName, Code, Name string
	// Default is AWS's value, Applied the account's own; nil when it has none.
	Default float64
	Applied *float64
	Fixed   bool // it cannot be raised
}

// Catalogue are the quotas of Fargate with AWS's defaults.
func Catalogue() []Quota {
	q := func(code, name string, value float64) Quota {
		return Quota{Service: Fargate, ServiceName: "AWS Fargate", Code: code, Name: name, Default: value}
	}
	return []Quota{
		q(VCPU, "Fargate On-Demand vCPU resource count", 6),
		q("L-36FBB829", "Fargate Spot vCPU resource count", 6),
		q(Burst, "Fargate On-Demand burst launch rate", 100),
		q("L-FAA52651", "Fargate Spot sustained launch rate", 20),
	}
}

// Apply gives the account a value of its own for a quota in qs.
func Apply(qs []Quota, code string, value float64) error {
	i := slices.IndexFunc(qs, func(q Quota) bool { return q.Code == code })
	if i < 0 {
		return fmt.Errorf("apply quota %s: there is no such quota", code)
	}
	qs[i].Applied = &value
	return nil
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options
}

// New makes the service.
func New(o Options) *Service {
	if o.Keys == nil {
		o.Keys = wire.NewKeys()
	}
	if o.Account == "" {
		o.Account = wire.Account
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Quotas == nil {
		o.Quotas = Catalogue()
	}
	o.Quotas = slices.Clone(o.Quotas)
	slices.SortFunc(o.Quotas, func(a, b Quota) int { return strings.Compare(a.Service+" "+a.Code, b.Service+" "+b.Code) })
	return &Service{opts: o}
}

var _ wire.Service = (*Service)(nil)

type quotaJSON struct {
	ServiceCode, ServiceName       string
	QuotaArn, QuotaCode, QuotaName string
	Value                          double
	Unit                           string
	Adjustable, GlobalQuota        bool
	UsageMetric                    *metricJSON `json:",omitempty"`
	QuotaAppliedAtLevel            string
}

// double is a number as AWS writes it: 40.0, which clients show.
type double float64

// MarshalJSON implements json.Marshaler.
func (d double) MarshalJSON() ([]byte, error) {
	text := strconv.FormatFloat(float64(d), 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return []byte(text), nil
}

// metricJSON is where CloudWatch keeps how much of the quota is used.
type metricJSON struct {
	MetricNamespace, MetricName   string
	MetricDimensions              map[string]string
	MetricStatisticRecommendation string
}

// json is a quota with a value: the account's own, or the default.
func (s *Service) json(q Quota, value float64, account string) quotaJSON {
	out := quotaJSON{
		ServiceCode: q.Service, ServiceName: q.ServiceName, QuotaCode: q.Code, QuotaName: q.Name, Value: double(value), Unit: "None",
		QuotaArn:   fmt.Sprintf("arn:aws:servicequotas:%s:%s:%s/%s", s.opts.Region, account, q.Service, q.Code),
		Adjustable: !q.Fixed, QuotaAppliedAtLevel: "ACCOUNT",
	}
	if q.Code == VCPU {
		out.UsageMetric = &metricJSON{
			MetricNamespace: "AWS/Usage", MetricName: "ResourceCount", MetricStatisticRecommendation: "Maximum",
			MetricDimensions: map[string]string{"Class": "Standard/OnDemand", "Resource": "vCPU", "Service": "Fargate", "Type": "Resource"},
		}
	}
	return out
}

// find is a quota by service and code.
func (s *Service) find(service, code string) (Quota, *wire.APIError) {
	if service == "" || code == "" {
		return Quota{}, illegal("ServiceCode and QuotaCode are needed")
	}
	known := false
	for _, q := range s.opts.Quotas {
		if q.Service == service && q.Code == code {
			return q, nil
		}
		known = known || q.Service == service
	}
	if !known {
		return Quota{}, missing("The request failed because the specified service does not exist.")
	}
	return Quota{}, missing("The request failed because the specified quota does not exist.")
}

func (s *Service) getServiceQuota(in input) (any, *wire.APIError) {
	q, apiErr := s.find(in.ServiceCode, in.QuotaCode)
	switch {
	case apiErr != nil:
		return nil, apiErr
	case q.Applied == nil:
		return nil, missing("The request failed because the account has no applied value of the specified quota.")
	}
	return map[string]any{"Quota": s.json(q, *q.Applied, s.opts.Account)}, nil
}

func (s *Service) getDefault(in input) (any, *wire.APIError) {
	q, apiErr := s.find(in.ServiceCode, in.QuotaCode)
	if apiErr != nil {
		return nil, apiErr
	}
	return map[string]any{"Quota": s.json(q, q.Default, "")}, nil
}

func (s *Service) listServiceQuotas(in input) (any, *wire.APIError) {
	return s.list(in, func(q Quota) (float64, string, bool) {
		if q.Applied == nil {
			return 0, "", false
		}
		return *q.Applied, s.opts.Account, true
	})
}

func (s *Service) listDefaults(in input) (any, *wire.APIError) {
	return s.list(in, func(q Quota) (float64, string, bool) { return q.Default, "", true })
}

// list is a page of the quotas of a service that have a value.
func (s *Service) list(in input, value func(Quota) (float64, string, bool)) (any, *wire.APIError) {
	all := []quotaJSON{}
	known := false
	for _, q := range s.opts.Quotas {
		if q.Service != in.ServiceCode {
			continue
		}
		known = true
		if v, account, ok := value(q); ok && (in.QuotaCode == "" || in.QuotaCode == q.Code) {
			all = append(all, s.json(q, v, account))
		}
	}
	if !known {
		return nil, missing("The request failed because the specified service does not exist.")
	}
	part, next, apiErr := cut(all, in.NextToken, in.MaxResults)
	if apiErr != nil {
		return nil, apiErr
	}
	out := map[string]any{"Quotas": part}
	if next != "" {
		out["NextToken"] = next
	}
	return out, nil
}
