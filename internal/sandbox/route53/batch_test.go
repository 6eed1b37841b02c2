package route53_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/sandbox/route53"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestBatchesThatAreRefused(t *testing.T) {
	alias := route53.RecordSet{Name: "alias.example.test", Type: "A", Alias: &route53.Alias{ZoneID: "Z1", DNSName: "lb.test", EvaluateTargetHealth: true}}
	simple := route53.RecordSet{Name: "www.example.test", Type: "CNAME", TTL: aws.Int64(60), Values: []string{"shop.example.test"}}
	edit := func(r route53.RecordSet, fn func(*route53.RecordSet)) route53.RecordSet { fn(&r); return r }
	for name, tt := range map[string]struct {
		changes []types.Change
		code    string
		message string
	}{
		"create what is there": {[]types.Change{do("CREATE", pair[0])}, "InvalidChangeBatch",
			"Tried to create resource record set [name='shop.example.test.', type='A', set-identifier='blue'] but it already exists"},
		"delete what is not there": {[]types.Change{do("DELETE", weighted("shop.example.test", "A", "red", 1, "127.0.0.4"))}, "InvalidChangeBatch",
			"Tried to delete resource record set [name='shop.example.test.', type='A', set-identifier='red'] but it was not found"},
		"delete with another weight": {[]types.Change{do("DELETE", weighted("shop.example.test", "A", "blue", 99, "127.0.0.2"))}, "InvalidChangeBatch",
			"but the values provided do not match the current values"},
		"delete with another TTL": {[]types.Change{do("DELETE", edit(pair[0], func(r *route53.RecordSet) { r.TTL = aws.Int64(61) }))},
			"InvalidChangeBatch", "do not match"},
		"delete with another value": {[]types.Change{do("DELETE", weighted("shop.example.test", "A", "blue", 100, "127.0.0.9"))}, "InvalidChangeBatch", "do not match"},
		"delete with a health check": {[]types.Change{do("DELETE", edit(pair[0], func(r *route53.RecordSet) { r.HealthCheckID = "x" }))},
			"InvalidChangeBatch", "do not match"},
		"delete an alias that evaluates": {[]types.Change{do("DELETE", edit(alias, func(r *route53.RecordSet) {
			r.Alias = &route53.Alias{ZoneID: "Z1", DNSName: "lb.test"}
		}))}, "InvalidChangeBatch", "do not match"},
		"outside of the zone": {[]types.Change{do("CREATE", weighted("shop.example.org", "A", "blue", 1, "127.0.0.2"))}, "InvalidChangeBatch",
			"RRSet with DNS name shop.example.org. is not permitted in zone example.test."},
		"zone as a suffix only": {[]types.Change{do("CREATE", weighted("shop.anexample.test", "A", "blue", 1, "127.0.0.2"))}, "InvalidChangeBatch", "is not permitted in zone"},
		"simple beside weighted": {[]types.Change{do("CREATE", route53.RecordSet{Name: "shop.example.test", Type: "A", TTL: aws.Int64(60), Values: []string{"127.0.0.9"}})},
			"InvalidChangeBatch", "cannot be created as other RRSets exist with the same name and type"},
		"weighted beside simple": {[]types.Change{do("CREATE", weighted("www.example.test", "CNAME", "blue", 1, "x.test"))}, "InvalidChangeBatch", "cannot be created as other RRSets exist"},
		"another TTL":            {[]types.Change{do("UPSERT", edit(pair[0], func(r *route53.RecordSet) { r.TTL = aws.Int64(30) }))}, "InvalidChangeBatch", "a different TTL"},
		"CNAME beside A":         {[]types.Change{do("CREATE", edit(simple, func(r *route53.RecordSet) { r.Name = "shop.example.test" }))}, "InvalidChangeBatch", "conflicting RRSet"},
		"CNAME at the apex":      {[]types.Change{do("CREATE", edit(simple, func(r *route53.RecordSet) { r.Name = "example.test" }))}, "InvalidChangeBatch", "not permitted at apex"},
		"no address":             {[]types.Change{do("UPSERT", weighted("shop.example.test", "A", "blue", 1, "localhost"))}, "InvalidChangeBatch", "not a valid IPv4 address"},
		"address of the other kind": {[]types.Change{do("CREATE", weighted("six.example.test", "AAAA", "blue", 1, "127.0.0.1"))}, "InvalidChangeBatch",
			"not a valid IPv6 address"},
		"weight above 255": {[]types.Change{do("UPSERT", weighted("shop.example.test", "A", "blue", 256, "127.0.0.2"))}, "InvalidInput",
			"Value '256' at 'changeBatch.changes.1.member.resourceRecordSet.weight' failed to satisfy constraint: Member must have value less than or equal to 255"},
		"weight below 0":            {[]types.Change{do("UPSERT", weighted("shop.example.test", "A", "blue", -1, "127.0.0.2"))}, "InvalidInput", "greater than or equal to 0"},
		"weight without identifier": {[]types.Change{do("CREATE", weighted("x.example.test", "A", "", 1, "127.0.0.2"))}, "InvalidInput", "Missing field 'SetIdentifier'"},
		"identifier without weight": {[]types.Change{do("CREATE", edit(simple, func(r *route53.RecordSet) { r.SetIdentifier = "blue" }))}, "InvalidInput", "Missing field 'Weight'"},
		"alias with a TTL":          {[]types.Change{do("CREATE", edit(alias, func(r *route53.RecordSet) { r.Name, r.TTL = "x.example.test", aws.Int64(1) }))}, "InvalidInput", "found more than one"},
		"nothing in it":             {[]types.Change{do("CREATE", route53.RecordSet{Name: "x.example.test", Type: "A"})}, "InvalidInput", "found none"},
		"no TTL":                    {[]types.Change{do("CREATE", route53.RecordSet{Name: "x.example.test", Type: "A", Values: []string{"127.0.0.1"}})}, "InvalidInput", "found none"},
		"unknown type":              {[]types.Change{do("CREATE", edit(simple, func(r *route53.RecordSet) { r.Type = "B" }))}, "InvalidInput", "enum value set"},
		"unknown action":            {[]types.Change{do("REPLACE", simple)}, "InvalidInput", "enum value set"},
		"the zone's own NS":         {[]types.Change{do("DELETE", route53.RecordSet{Name: "example.test", Type: "NS", TTL: aws.Int64(172800), Values: []string{"ns-4.awsdns-04.co.uk.", "ns-2.awsdns-02.net.", "ns-3.awsdns-03.org.", "ns-1.awsdns-01.com."}})}, "InvalidChangeBatch", "at least one NS record"},
		"geolocation":               {[]types.Change{{Action: "CREATE", ResourceRecordSet: &types.ResourceRecordSet{Name: aws.String("x.example.test"), Type: "A", GeoLocation: &types.GeoLocation{CountryCode: aws.String("DE")}}}}, "InvalidInput", "geolocation"},
		"all or nothing":            {[]types.Change{do("DELETE", pair[1]), do("CREATE", pair[0])}, "InvalidChangeBatch", "already exists"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, append(pair, alias, simple)...)
			before, _ := json.Marshal(r.svc.Snapshot())
			_, err := r.change(t, tt.changes...)
			if wiretest.Code(err) != tt.code || r.srv.Last().Status != http.StatusBadRequest {
				t.Fatalf("got %v, status %d", err, r.srv.Last().Status)
			}
			if !strings.Contains(err.Error(), tt.message) {
				t.Errorf("the error says %v", err)
			}
			if tt.code == "InvalidChangeBatch" && !strings.Contains(strings.Join(messages(err), "\n"), tt.message) {
				t.Errorf("its messages are %q", messages(err))
			}
			after, _ := json.Marshal(r.svc.Snapshot())
			if string(before) != string(after) {
				t.Errorf("the zone has changed:\n%s\n%s", before, after)
			}
		})
	}
}

func TestEveryReasonIsGiven(t *testing.T) {
	r := newRig(t, pair...)
	_, err := r.change(t, do("CREATE", pair[0]), do("CREATE", pair[1]))
	if len(messages(err)) != 2 {
		t.Errorf("got %v", err)
	}
}

func TestBatchesThatConvert(t *testing.T) {
	simple := route53.RecordSet{Name: "www.example.test", Type: "A", TTL: aws.Int64(300), Values: []string{"127.0.0.2", "127.0.0.9"}}
	for name, changes := range map[string][]types.Change{
		"simple to weighted": {
			do("DELETE", route53.RecordSet{Name: "WWW.example.test.", Type: "A", TTL: aws.Int64(300), Values: []string{"127.0.0.9", "127.0.0.2"}}),
			do("CREATE", weighted("www.example.test", "A", "blue", 255, "127.0.0.2")), do("CREATE", weighted("www.example.test", "A", "green", 0, "127.0.0.3")),
		},
		"another TTL for all": {
			do("DELETE", pair[0]), do("CREATE", func() route53.RecordSet { r := pair[0]; r.TTL = aws.Int64(5); return r }()),
			do("DELETE", pair[1]), do("CREATE", func() route53.RecordSet { r := pair[1]; r.TTL = aws.Int64(5); return r }()),
		},
		"two aliases": {
			do("CREATE", route53.RecordSet{Name: "example.test", Type: "A", SetIdentifier: "b", Weight: aws.Int64(1), Alias: &route53.Alias{ZoneID: "Z1", DNSName: "dualstack.LB.test "}}),
			do("CREATE", route53.RecordSet{Name: "example.test", Type: "A", SetIdentifier: "g", Weight: aws.Int64(0), Alias: &route53.Alias{ZoneID: "Z1", DNSName: "lb2.test", EvaluateTargetHealth: true}}),
		},
		"other policies": {
			do("CREATE", route53.RecordSet{Name: "m.example.test", Type: "A", SetIdentifier: "1", MultiValue: aws.Bool(true), TTL: aws.Int64(1), Values: []string{"127.0.0.1"}}),
			do("CREATE", route53.RecordSet{Name: "f.example.test", Type: "A", SetIdentifier: "1", Failover: "PRIMARY", TTL: aws.Int64(1), Values: []string{"127.0.0.1"}}),
			do("CREATE", route53.RecordSet{Name: "l.example.test", Type: "A", SetIdentifier: "1", Region: "eu-west-1", TTL: aws.Int64(1), Values: []string{"127.0.0.1"}}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, append(pair, simple)...)
			if _, err := r.change(t, changes...); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is listed can be sent back as it is: every record set deletes itself.
func TestWhatIsListedDeletesItself(t *testing.T) {
	r := newRig(t, append(pair,
		route53.RecordSet{Name: "*.example.test", Type: "TXT", TTL: aws.Int64(60), Values: []string{`"heritage=external-dns,external-dns/owner=me"`}},
		route53.RecordSet{Name: "a.example.test", Type: "AAAA", SetIdentifier: "x y", Weight: aws.Int64(7), Alias: &route53.Alias{ZoneID: "Z1", DNSName: "LB.test"}},
		route53.RecordSet{Name: "m.example.test", Type: "MX", TTL: aws.Int64(60), Values: []string{"10 a.test", "20 b.test"}},
	)...)
	var changes []types.Change
	for _, s := range r.list(t, 2) {
		if s.Type != "NS" && s.Type != "SOA" {
			changes = append(changes, types.Change{Action: "DELETE", ResourceRecordSet: &s})
		}
	}
	if len(changes) != 5 {
		t.Fatalf("listed %d", len(changes))
	}
	if _, err := r.change(t, changes...); err != nil {
		t.Fatal(err)
	}
	if left := r.list(t, 300); len(left) != 2 {
		t.Errorf("left over: %v", left)
	}
}

// Whatever batches come in whatever order: a group is of one policy and one TTL, and
// what is served is in the end what was written.
func TestNoBatchBreaksAGroup(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, pair...)
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			var changes []types.Change
			for range rapid.IntRange(1, 4).Draw(rt, "size") {
				s := weighted("shop.example.test", "A", rapid.SampledFrom([]string{"blue", "green", "red"}).Draw(rt, "id"),
					rapid.Int64Range(0, 255).Draw(rt, "weight"), "127.0.0.2")
				if rapid.IntRange(0, 3).Draw(rt, "simple") == 0 {
					s.SetIdentifier, s.Weight = "", nil
				}
				s.TTL = aws.Int64(rapid.SampledFrom([]int64{60, 60, 60, 30}).Draw(rt, "ttl"))
				action := rapid.SampledFrom([]types.ChangeAction{"CREATE", "UPSERT", "DELETE"}).Draw(rt, "action")
				if action == "DELETE" {
					if now := r.svc.Lookup(s.Name, "A"); len(now) > 0 {
						s = rapid.SampledFrom(now).Draw(rt, "victim")
					}
				}
				changes = append(changes, do(action, s))
			}
			_, _ = r.change(t, changes...)
			r.step(time.Duration(rapid.IntRange(0, 40).Draw(rt, "wait")) * time.Second)
		}
		r.step(time.Minute)
		var written []string
		ttl, simple := int64(0), 0
		for _, s := range r.list(t, 300) {
			if *s.Name != "shop.example.test." {
				continue
			}
			if ttl != 0 && *s.TTL != ttl {
				rt.Fatalf("TTLs %d and %d", ttl, *s.TTL)
			}
			if ttl = *s.TTL; s.Weight == nil {
				simple++
			}
			written = append(written, fmt.Sprint(aws.ToString(s.SetIdentifier), aws.ToInt64(s.Weight)))
		}
		if simple > 0 && len(written) > 1 {
			rt.Fatalf("simple beside weighted: %v", written)
		}
		var served []string
		for _, s := range r.svc.Lookup("shop.example.test", "A") {
			served = append(served, fmt.Sprint(s.SetIdentifier, aws.ToInt64(s.Weight)))
		}
		if !slices.Equal(written, served) {
			rt.Fatalf("written %v, served %v", written, served)
		}
	})
}
