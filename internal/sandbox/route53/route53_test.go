package route53_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	aws53 "github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/sandbox/route53"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const zone = "Z0EXAMPLE"

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// rig is a service with the zone example.test, on a clock that the test moves.
type rig struct {
	*aws53.Client
	svc *route53.Service
	srv *wiretest.Server

	mu  sync.Mutex
	now time.Time
}

func (r *rig) time() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now }

func (r *rig) step(d time.Duration) { r.mu.Lock(); defer r.mu.Unlock(); r.now = r.now.Add(d) }

func newRig(t *testing.T, records ...route53.RecordSet) *rig {
	t.Helper()
	r := &rig{now: start}
	r.svc = route53.New(route53.Options{Propagation: 30 * time.Second, Now: r.time})
	if err := r.svc.AddZone(route53.Zone{ID: zone, Name: "example.test", Records: records}); err != nil {
		t.Fatal(err)
	}
	r.srv = wiretest.Serve(t, r.svc)
	r.Client = aws53.NewFromConfig(r.srv.Config())
	return r
}

func weighted(name, typ, id string, weight int64, value string) route53.RecordSet {
	return route53.RecordSet{Name: name, Type: typ, SetIdentifier: id, Weight: &weight, TTL: aws.Int64(60), Values: []string{value}}
}

var pair = []route53.RecordSet{
	weighted("shop.example.test", "A", "blue", 100, "127.0.0.2"),
	weighted("shop.example.test", "A", "green", 0, "127.0.0.3"),
}

// set is a record set as the SDK has it.
func set(r route53.RecordSet) *types.ResourceRecordSet {
	out := &types.ResourceRecordSet{Name: &r.Name, Type: types.RRType(r.Type), Weight: r.Weight, TTL: r.TTL, MultiValueAnswer: r.MultiValue,
		Region: types.ResourceRecordSetRegion(r.Region), Failover: types.ResourceRecordSetFailover(r.Failover)}
	if r.SetIdentifier != "" {
		out.SetIdentifier = &r.SetIdentifier
	}
	if r.HealthCheckID != "" {
		out.HealthCheckId = &r.HealthCheckID
	}
	for _, v := range r.Values {
		out.ResourceRecords = append(out.ResourceRecords, types.ResourceRecord{Value: aws.String(v)})
	}
	if a := r.Alias; a != nil {
		out.AliasTarget = &types.AliasTarget{HostedZoneId: &a.ZoneID, DNSName: &a.DNSName, EvaluateTargetHealth: a.EvaluateTargetHealth}
	}
	return out
}

func do(action types.ChangeAction, r route53.RecordSet) types.Change {
	return types.Change{Action: action, ResourceRecordSet: set(r)}
}

func (r *rig) change(t *testing.T, changes ...types.Change) (*types.ChangeInfo, error) {
	t.Helper()
	out, err := r.ChangeResourceRecordSets(t.Context(), &aws53.ChangeResourceRecordSetsInput{
		HostedZoneId: aws.String(zone), ChangeBatch: &types.ChangeBatch{Changes: changes, Comment: aws.String("test")},
	})
	if err != nil {
		return nil, err
	}
	return out.ChangeInfo, nil
}

func (r *rig) list(t *testing.T, size int32) (out []types.ResourceRecordSet) {
	t.Helper()
	pages := aws53.NewListResourceRecordSetsPaginator(r, &aws53.ListResourceRecordSetsInput{HostedZoneId: aws.String(zone), MaxItems: &size})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page.ResourceRecordSets...)
	}
	return out
}

// weights are those of shop.example.test as the API and as the servers have them.
func (r *rig) weights(t *testing.T) (written, served string) {
	t.Helper()
	for _, s := range r.list(t, 300) {
		if s.Weight != nil {
			written += fmt.Sprintf("%s=%d ", *s.SetIdentifier, *s.Weight)
		}
	}
	for _, s := range r.svc.Lookup("SHOP.example.test.", "A") {
		served += fmt.Sprintf("%s=%d ", s.SetIdentifier, *s.Weight)
	}
	return strings.TrimSpace(written), strings.TrimSpace(served)
}

func messages(err error) []string {
	if e, ok := errors.AsType[*types.InvalidChangeBatch](err); ok {
		return e.Messages
	}
	return nil
}

func TestAChangeIsServedOnceItIsInSync(t *testing.T) {
	r := newRig(t, pair...)
	info, err := r.change(t,
		do("DELETE", pair[0]), do("DELETE", pair[1]),
		do("CREATE", weighted("shop.example.test", "A", "blue", 90, "127.0.0.2")),
		do("CREATE", weighted("shop.example.test", "A", "green", 10, "127.0.0.3")),
	)
	if err != nil {
		t.Fatal(err)
	}
	if info.Status != types.ChangeStatusPending || !info.SubmittedAt.Equal(start) || *info.Comment != "test" {
		t.Errorf("accepted as %+v", info)
	}
	for _, tt := range []struct {
		wait   time.Duration
		status types.ChangeStatus
		served string
	}{
		{0, types.ChangeStatusPending, "blue=100 green=0"},
		{29 * time.Second, types.ChangeStatusPending, "blue=100 green=0"},
		{time.Second, types.ChangeStatusInsync, "blue=90 green=10"},
	} {
		r.step(tt.wait)
		written, served := r.weights(t)
		if written != "blue=90 green=10" || served != tt.served {
			t.Errorf("written %s, served %s, want %s", written, served, tt.served)
		}
		out, err := r.GetChange(t.Context(), &aws53.GetChangeInput{Id: info.Id})
		if err != nil || out.ChangeInfo.Status != tt.status {
			t.Errorf("the change is %v, %v", out, err)
		}
	}
	if _, err := r.GetChange(t.Context(), &aws53.GetChangeInput{Id: aws.String("CNONE")}); wiretest.Code(err) != "NoSuchChange" {
		t.Errorf("an unknown change: %v", err)
	}
}

// Two changes under way: each is served when it is its turn.
func TestChangesComeIntoForceOneAfterTheOther(t *testing.T) {
	r := newRig(t, pair...)
	for _, w := range []int64{90, 50} {
		if _, err := r.change(t, do("UPSERT", weighted("shop.example.test", "A", "blue", w, "127.0.0.2"))); err != nil {
			t.Fatal(err)
		}
		r.step(20 * time.Second)
	}
	for _, want := range []string{"blue=90 green=0", "blue=50 green=0"} {
		if _, served := r.weights(t); served != want {
			t.Errorf("served %s, want %s", served, want)
		}
		r.step(20 * time.Second)
	}
}

func TestListingIsSortedAndPaged(t *testing.T) {
	var records []route53.RecordSet
	for _, name := range []string{"b.example.test", "example.test", "a.b.example.test", "a.example.test", "z.a.example.test"} {
		records = append(records, weighted(name, "AAAA", "y", 1, "::1"), weighted(name, "AAAA", "x", 1, "::2"), weighted(name, "A", "x", 1, "127.0.0.1"))
	}
	r := newRig(t, records...)
	var got []string
	for _, s := range r.list(t, 3) {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", *s.Name, s.Type, aws.ToString(s.SetIdentifier))))
	}
	var want []string
	for _, name := range []string{"example.test.", "a.example.test.", "z.a.example.test.", "b.example.test.", "a.b.example.test."} {
		want = append(want, name+" A x", name+" AAAA x", name+" AAAA y")
		if name == "example.test." {
			want = append(want, name+" NS", name+" SOA")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, tt := range map[string]struct {
		in   aws53.ListResourceRecordSetsInput
		want string
	}{
		"from a name":                 {aws53.ListResourceRecordSetsInput{StartRecordName: aws.String("a.example.test")}, "a.example.test. A x"},
		"from a name not there":       {aws53.ListResourceRecordSetsInput{StartRecordName: aws.String("aa.example.test")}, "b.example.test. A x"},
		"from a type":                 {aws53.ListResourceRecordSetsInput{StartRecordName: aws.String("a.example.test"), StartRecordType: "AAAA"}, "a.example.test. AAAA x"},
		"from an identifier":          {aws53.ListResourceRecordSetsInput{StartRecordName: aws.String("a.example.test"), StartRecordType: "AAAA", StartRecordIdentifier: aws.String("y")}, "a.example.test. AAAA y"},
		"type without name":           {aws53.ListResourceRecordSetsInput{StartRecordType: "AAAA"}, "InvalidInput"},
		"identifier without type":     {aws53.ListResourceRecordSetsInput{StartRecordName: aws.String("a.example.test"), StartRecordIdentifier: aws.String("y")}, "InvalidInput"},
		"from behind the last record": {aws53.ListResourceRecordSetsInput{StartRecordName: aws.String("zz.example.test")}, ""},
	} {
		tt.in.HostedZoneId, tt.in.MaxItems = aws.String(zone), aws.Int32(1)
		out, err := r.ListResourceRecordSets(t.Context(), &tt.in)
		got := wiretest.Code(err)
		if err == nil && len(out.ResourceRecordSets) > 0 {
			s := out.ResourceRecordSets[0]
			got = fmt.Sprintf("%s %s %s", *s.Name, s.Type, aws.ToString(s.SetIdentifier))
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestZones(t *testing.T) {
	r := newRig(t)
	for _, z := range []route53.Zone{
		{ID: "Z2", Name: "example.test.", Private: true, Comment: "inside"}, {ID: "Z3", Name: "another.test"}, {ID: "Z4", Name: "zebra.test"},
	} {
		if err := r.svc.AddZone(z); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.svc.AddZone(route53.Zone{ID: "Z4", Name: "again.test"}); err == nil {
		t.Error("an id was taken twice")
	}
	var ids []string
	pages := aws53.NewListHostedZonesPaginator(r, &aws53.ListHostedZonesInput{MaxItems: aws.Int32(3)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range page.HostedZones {
			ids = append(ids, *z.Id)
		}
	}
	if !slices.Equal(ids, []string{"/hostedzone/Z0EXAMPLE", "/hostedzone/Z2", "/hostedzone/Z3", "/hostedzone/Z4"}) {
		t.Errorf("zones are %v", ids)
	}
	byName, err := r.ListHostedZonesByName(t.Context(), &aws53.ListHostedZonesByNameInput{DNSName: aws.String("example.test"), MaxItems: aws.Int32(2)})
	if err != nil {
		t.Fatal(err)
	}
	if len(byName.HostedZones) != 2 || *byName.HostedZones[0].Id != "/hostedzone/Z0EXAMPLE" || byName.HostedZones[0].Config.PrivateZone ||
		!byName.HostedZones[1].Config.PrivateZone || *byName.NextDNSName != "zebra.test." {
		t.Errorf("by name: %+v", byName)
	}
	// It begins at the name, it does not filter.
	byName, err = r.ListHostedZonesByName(t.Context(), &aws53.ListHostedZonesByNameInput{DNSName: aws.String("f.test")})
	if err != nil || len(byName.HostedZones) != 1 || *byName.HostedZones[0].Name != "zebra.test." {
		t.Errorf("from f.test: %+v %v", byName, err)
	}
	one, err := r.GetHostedZone(t.Context(), &aws53.GetHostedZoneInput{Id: aws.String("/hostedzone/Z0EXAMPLE")})
	if err != nil || *one.HostedZone.Name != "example.test." || len(one.DelegationSet.NameServers) != 4 || *one.HostedZone.ResourceRecordSetCount != 2 {
		t.Errorf("one zone: %+v %v", one, err)
	}
	_, err = r.GetHostedZone(t.Context(), &aws53.GetHostedZoneInput{Id: aws.String("ZNONE")})
	if wiretest.Code(err) != "NoSuchHostedZone" || r.srv.Last().Status != http.StatusNotFound {
		t.Errorf("an unknown zone: %v", err)
	}
	if got := r.svc.Zones(); !slices.Equal(got, []string{"another.test.", "example.test.", "zebra.test."}) {
		t.Errorf("Zones: %v", got)
	}
}

func TestLookupAnswersAsAServerDoes(t *testing.T) {
	r := newRig(t, append(pair,
		route53.RecordSet{Name: "*.apps.example.test", Type: "A", TTL: aws.Int64(60), Values: []string{"127.0.0.7"}},
		route53.RecordSet{Name: "one.apps.example.test", Type: "TXT", TTL: aws.Int64(60), Values: []string{`"x"`}},
	)...)
	for _, tt := range []struct {
		name, typ string
		n         int
		exists    bool
	}{
		{"shop.example.test", "A", 2, true},
		{"Shop.Example.Test.", "A", 2, true},
		{"shop.example.test", "AAAA", 0, true},
		{"two.apps.example.test", "A", 1, true},
		{"deep.two.apps.example.test", "A", 1, true},
		{"one.apps.example.test", "A", 0, true},
		{"apps.example.test", "A", 0, false},
		{"nothing.example.test", "A", 0, false},
		{"elsewhere.test", "A", 0, false},
		{"example.test", "SOA", 1, true},
	} {
		if got := r.svc.Lookup(tt.name, tt.typ); len(got) != tt.n || r.svc.Exists(tt.name) != tt.exists {
			t.Errorf("%s %s: %v, exists %t", tt.name, tt.typ, got, r.svc.Exists(tt.name))
		}
	}
}

func TestFaultsAndCredentials(t *testing.T) {
	r := newRig(t, pair...)
	for _, tt := range []struct {
		fault  wire.Fault
		code   string
		status int
	}{
		{wire.Fault{Call: "route53:ChangeResourceRecordSets", Object: zone, Error: "PriorRequestNotComplete"}, "PriorRequestNotComplete", 400},
		{wire.Fault{Call: "route53:*", Error: "Throttling"}, "Throttling", 400},
		{wire.Fault{Call: "route53:*", Error: "ExpiredToken"}, "ExpiredToken", 403},
		{wire.Fault{Call: "route53:*", Status: 503}, "ServiceUnavailable", 503},
		{wire.Fault{Call: "route53:*", Error: "InvalidChangeBatch", Message: "words"}, "InvalidChangeBatch", 400},
	} {
		if err := r.srv.Faults.Add(tt.fault); err != nil {
			t.Fatal(err)
		}
		_, err := r.change(t, do("UPSERT", pair[0]))
		if wiretest.Code(err) != tt.code || r.srv.Last().Status != tt.status {
			t.Errorf("%+v: %v, status %d", tt.fault, err, r.srv.Last().Status)
		}
		if tt.code == "InvalidChangeBatch" && !slices.Equal(messages(err), []string{"words"}) {
			t.Errorf("messages are %v", messages(err))
		}
	}
	cfg := r.srv.Config()
	cfg.Credentials = credentials.NewStaticCredentialsProvider("AKIDNOBODY", "x", "")
	_, err := aws53.NewFromConfig(cfg).ListHostedZones(t.Context(), nil)
	if wiretest.Code(err) != "InvalidClientTokenId" || r.srv.Last().Status != http.StatusForbidden {
		t.Errorf("got %v", err)
	}
}

// AWS's own request, with names and values that exist put in, is understood. (The
// module has no snapshots of answers.)
func TestRequestsOfTheSnapshotsAreUnderstood(t *testing.T) {
	r := newRig(t, pair...)
	for operation, names := range map[string][]string{
		"ListHostedZones": nil, "ListHostedZonesByName": nil, "GetHostedZone": {"__Id__", zone}, "GetChange": {"__Id__", "C1"},
		"ListResourceRecordSets": {"__HostedZoneId__", zone}, "ChangeResourceRecordSets": {"__HostedZoneId__", zone},
	} {
		line, body := wiretest.SnapshotBody(t, "route53", "request_snapshot/"+operation+".request.snap")
		method, path, _ := strings.Cut(strings.NewReplacer(names...).Replace(line), " ")
		req, err := http.NewRequest(method, "http://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := r.svc.Classify(req, body)
		if c.Name != "route53:"+operation || c.Changing != (operation == "ChangeResourceRecordSets") {
			t.Errorf("%s %s is taken for %+v", method, path, c)
		}
	}
	// What the SDK sends for a weighted alias has the members of the snapshot, and
	// no others.
	alias := route53.RecordSet{Name: "x.example.test", Type: "A", SetIdentifier: "b", Weight: aws.Int64(1), Alias: &route53.Alias{ZoneID: "Z1", DNSName: "lb.test"}}
	if _, err := r.change(t, do("CREATE", alias), do("CREATE", weighted("y.example.test", "A", "b", 1, "127.0.0.1"))); err != nil {
		t.Fatal(err)
	}
	_, want := wiretest.SnapshotBody(t, "route53", "request_snapshot/ChangeResourceRecordSets.request.snap")
	wiretest.SameXML(t, r.srv.Last().Request, want)
}
