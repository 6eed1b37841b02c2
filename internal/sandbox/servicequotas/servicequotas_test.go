package servicequotas_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssq "github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas/types"
	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/sandbox/servicequotas"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a service for an account that got 40 vCPUs and nothing else.
type rig struct {
	*awssq.Client
	svc  *servicequotas.Service
	srv  *wiretest.Server
	keys *wire.Keys
}

func newRig(t *testing.T) *rig {
	t.Helper()
	quotas := servicequotas.Catalogue()
	if err := servicequotas.Apply(quotas, servicequotas.VCPU, 40); err != nil {
		t.Fatal(err)
	}
	r := &rig{keys: wire.NewKeys()}
	r.svc = servicequotas.New(servicequotas.Options{Region: "eu-west-1", Keys: r.keys, Quotas: quotas})
	r.srv = wiretest.Serve(t, r.svc)
	r.Client = awssq.NewFromConfig(r.srv.Config())
	return r
}

func (r *rig) own(t *testing.T, service, code string) (*types.ServiceQuota, error) {
	t.Helper()
	out, err := r.GetServiceQuota(t.Context(), &awssq.GetServiceQuotaInput{ServiceCode: &service, QuotaCode: &code})
	if err != nil {
		return nil, err
	}
	return out.Quota, nil
}

func TestAppliedAndDefaultValues(t *testing.T) {
	r := newRig(t)
	q, err := r.own(t, servicequotas.Fargate, servicequotas.VCPU)
	if err != nil || *q.Value != 40 || *q.QuotaArn != "arn:aws:servicequotas:eu-west-1:111122223333:fargate/L-3032A538" || !q.Adjustable || *q.UsageMetric.MetricName != "ResourceCount" {
		t.Errorf("the account's vCPU quota is %+v (%v)", q, err)
	}
	def, err := r.GetAWSDefaultServiceQuota(t.Context(), &awssq.GetAWSDefaultServiceQuotaInput{ServiceCode: aws.String("fargate"), QuotaCode: aws.String(servicequotas.VCPU)})
	if err != nil || *def.Quota.Value != 6 || *def.Quota.QuotaArn != "arn:aws:servicequotas:eu-west-1::fargate/L-3032A538" {
		t.Errorf("AWS's default is %+v (%v)", def, err)
	}
	if _, err := r.own(t, servicequotas.Fargate, servicequotas.Burst); wiretest.Code(err) != "NoSuchResourceException" {
		t.Errorf("a quota that the account has no value of: %v", err)
	}
	own, err := r.ListServiceQuotas(t.Context(), &awssq.ListServiceQuotasInput{ServiceCode: aws.String("fargate")})
	if err != nil || len(own.Quotas) != 1 || *own.Quotas[0].QuotaCode != servicequotas.VCPU {
		t.Errorf("the account's quotas are %+v (%v)", own, err)
	}
	var names []string
	pages := awssq.NewListAWSDefaultServiceQuotasPaginator(r, &awssq.ListAWSDefaultServiceQuotasInput{ServiceCode: aws.String("fargate"), MaxResults: aws.Int32(3)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range page.Quotas {
			names = append(names, *q.QuotaName)
		}
	}
	if got := strings.Join(names, ", "); len(names) != 4 || !strings.Contains(got, "Fargate On-Demand burst launch rate") {
		t.Errorf("the quotas are %s", got)
	}
}

// Each answer has only members that AWS's own has, and AWS's own requests are understood.
func TestWireForm(t *testing.T) {
	r := newRig(t)
	fargate, vcpu := aws.String("fargate"), aws.String(servicequotas.VCPU)
	for operation, call := range map[string]func() error{
		"GetServiceQuota": func() error { _, err := r.own(t, "fargate", servicequotas.VCPU); return err },
		"GetAWSDefaultServiceQuota": func() error {
			_, err := r.GetAWSDefaultServiceQuota(t.Context(), &awssq.GetAWSDefaultServiceQuotaInput{ServiceCode: fargate, QuotaCode: vcpu})
			return err
		},
		"ListServiceQuotas": func() error {
			_, err := r.ListServiceQuotas(t.Context(), &awssq.ListServiceQuotasInput{ServiceCode: fargate, QuotaCode: vcpu})
			return err
		},
		"ListAWSDefaultServiceQuotas": func() error {
			_, err := r.ListAWSDefaultServiceQuotas(t.Context(), &awssq.ListAWSDefaultServiceQuotasInput{ServiceCode: fargate, MaxResults: aws.Int32(1)})
			return err
		},
	} {
		t.Run(operation, func(t *testing.T) {
			if err := call(); err != nil {
				t.Fatal(err)
			}
			got := r.srv.Last()
			_, want := wiretest.SnapshotBody(t, "servicequotas", "response_snapshot/"+operation+".response.snap")
			wiretest.SameJSON(t, got.Response, want, "MetricDimensions")
			if ct := got.Header.Get("Content-Type"); ct != "application/x-amz-json-1.1" {
				t.Errorf("content type is %s", ct)
			}
			_, sent := wiretest.SnapshotBody(t, "servicequotas", "request_snapshot/"+operation+".request.snap")
			req, err := http.NewRequest(http.MethodPost, "http://x/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Amz-Target", "ServiceQuotasV20190624."+operation)
			c := r.svc.Classify(req, sent)
			if c.Name != "servicequotas:"+operation || c.Changing || !strings.HasPrefix(c.Object, "__ServiceCode__") {
				t.Errorf("AWS's request is taken for %+v", c)
			}
		})
	}
}

// Errors have the status, the content type and the members that AWS's snapshots show.
func TestErrorsAreAWSs(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"NoSuchResourceException", "IllegalArgumentException", "TooManyRequestsException", "AccessDeniedException", "ServiceException"} {
		first, want := wiretest.SnapshotBody(t, "servicequotas", "response_snapshot/"+name+".error.snap")
		if err := r.srv.Faults.Add(wire.Fault{Call: "servicequotas:*", Error: name}); err != nil {
			t.Fatal(err)
		}
		_, err := r.own(t, "fargate", servicequotas.VCPU)
		got := r.srv.Last()
		if wiretest.Code(err) != name || strings.TrimSpace(first) != strconv.Itoa(got.Status) {
			t.Errorf("%s: %v with status %d, want %s", name, err, got.Status, first)
		}
		wiretest.SameJSON(t, got.Response, want)
	}
	for _, c := range []struct{ service, quota, want string }{
		{"fargate", "L-NONE", "NoSuchResourceException"}, {"nothing", servicequotas.VCPU, "NoSuchResourceException"},
	} {
		if _, err := r.own(t, c.service, c.quota); wiretest.Code(err) != c.want {
			t.Errorf("%s/%s: %v", c.service, c.quota, err)
		}
	}
	if _, err := r.ListServiceQuotas(t.Context(), &awssq.ListServiceQuotasInput{ServiceCode: aws.String("fargate"), NextToken: aws.String("no")}); wiretest.Code(err) != "InvalidPaginationTokenException" {
		t.Errorf("a wrong token: %v", err)
	}
	if _, err := r.ListServiceQuotas(t.Context(), &awssq.ListServiceQuotasInput{ServiceCode: aws.String("fargate"), MaxResults: aws.Int32(101)}); wiretest.Code(err) != "IllegalArgumentException" {
		t.Errorf("a page of 101: %v", err)
	}
	if _, err := r.ListServices(t.Context(), nil); wiretest.Code(err) != "UnknownOperationException" {
		t.Errorf("an operation that there is not: %v", err)
	}
	r.keys.Expire(wire.AccessKey, time.Now().Add(-time.Minute))
	if _, err := r.own(t, "fargate", servicequotas.VCPU); wiretest.Code(err) != "ExpiredTokenException" {
		t.Errorf("with expired keys: %v", err)
	}
}

func TestApplyKnowsItsQuotas(t *testing.T) {
	if err := servicequotas.Apply(servicequotas.Catalogue(), "L-NONE", 1); err == nil {
		t.Error("a quota that there is not was applied")
	}
}
