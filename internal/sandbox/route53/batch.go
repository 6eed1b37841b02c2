package route53

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// edit is one change of a batch.
type edit struct {
	action string
	set    RecordSet
}

var recordTypes = []string{
	"A", "AAAA", "CAA", "CNAME", "DS", "HTTPS", "MX", "NAPTR", "NS", "PTR", "SOA", "SPF", "SRV", "SSHFP", "SVCB", "TLSA", "TXT",
}

// apply works a batch out without touching the zone. It answers the records after
// it; messages, of an InvalidChangeBatch, say why not; invalid is an InvalidInput,
// which concerns the form of a change alone.
func (z *zone) apply(batch []edit) (after map[key]RecordSet, messages []string, invalid *wire.APIError) {
	after = maps.Clone(z.records)
	touched := map[key]bool{}
	for i, e := range batch {
		e.set = e.set.stored()
		if err := e.form(i + 1); err != nil {
			return nil, nil, err
		}
		k := e.set.key()
		touched[key{name: k.name, typ: k.typ}] = true
		old, there := after[k]
		switch {
		case !inZone(k.name, z.Name):
			messages = append(messages, fmt.Sprintf("RRSet with DNS name %s is not permitted in zone %s", k.name, z.Name))
		case e.action == "CREATE" && there:
			messages = append(messages, fmt.Sprintf("Tried to create resource record set %s but it already exists", k))
		case e.action == "DELETE" && !there:
			messages = append(messages, fmt.Sprintf("Tried to delete resource record set %s but it was not found", k))
		case e.action == "DELETE" && !same(old, e.set):
			messages = append(messages, fmt.Sprintf(
				"Tried to delete resource record set %s but the values provided do not match the current values", k))
		case e.action == "DELETE":
			delete(after, k)
		default:
			messages = append(messages, e.set.values()...)
			after[k] = e.set
		}
	}
	if len(messages) == 0 {
		messages = z.whole(after, touched)
	}
	return after, messages, nil
}

// whole holds the names and types that a batch touched to the rules that concern
// several record sets at once.
func (z *zone) whole(after map[key]RecordSet, touched map[key]bool) (messages []string) {
	for _, t := range slices.SortedFunc(maps.Keys(touched), key.compare) {
		var group []RecordSet
		cname, others := "", ""
		for _, k := range sorted(after) {
			if k.name != t.name {
				continue
			}
			if k.typ == "CNAME" {
				cname = k.typ
			} else {
				others = k.typ
			}
			if k.typ == t.typ {
				group = append(group, after[k])
			}
		}
		switch {
		case cname != "" && t.name == z.Name:
			messages = append(messages, fmt.Sprintf("RRSet of type CNAME with DNS name %s is not permitted at apex in zone %s", t.name, z.Name))
		case cname != "" && others != "":
			messages = append(messages, fmt.Sprintf("RRSet of type %s with DNS name %s is not permitted because a conflicting RRSet of type "+
				"%s with the same DNS name already exists in zone %s", cname, t.name, others, z.Name))
		case len(group) == 0 && t.name == z.Name && (t.typ == "NS" || t.typ == "SOA"):
			messages = append(messages, fmt.Sprintf("A HostedZone must contain at least one %s record for the zone itself.", t.typ))
		default:
			messages = append(messages, agree(group)...)
		}
	}
	return messages
}

// agree holds the members of one name and type to one policy and one TTL.
func agree(group []RecordSet) (messages []string) {
	for _, r := range group[min(1, len(group)):] {
		first := group[0]
		switch {
		case r.policy() != first.policy():
			messages = append(messages, fmt.Sprintf("RRSet with DNS name %s, type %s cannot be created as other RRSets exist "+
				"with the same name and type.", r.Name, r.Type))
		case r.TTL != nil && first.TTL != nil && *r.TTL != *first.TTL:
			messages = append(messages, fmt.Sprintf("RRSet with DNS name %s, type %s, SetIdentifier %s cannot be created as other RRSets "+
				"exist with the same name and type, but a different TTL.", r.Name, r.Type, r.SetIdentifier))
		}
	}
	if len(group) > 100 {
		messages = append(messages, fmt.Sprintf("Number of records limit of 100 exceeded for %s %s.", group[0].Name, group[0].Type))
	}
	return messages
}

func (r RecordSet) policy() string {
	switch {
	case r.Weight != nil:
		return "weighted"
	case r.Region != "":
		return "latency"
	case r.Failover != "":
		return "failover"
	case r.MultiValue != nil:
		return "multivalue"
	}
	return "simple"
}

// form checks what can be said about a change without looking at the zone; n is
// its place in the batch, from 1.
func (e edit) form(n int) *wire.APIError {
	r := e.set
	where := fmt.Sprintf("in Change with [Action=%s, Name=%s, Type=%s, SetIdentifier=%s]", e.action, r.Name, r.Type, orNull(r.SetIdentifier))
	switch {
	case !slices.Contains([]string{"CREATE", "DELETE", "UPSERT"}, e.action):
		return constraint(n, "action", e.action, "Member must satisfy enum value set: [CREATE, DELETE, UPSERT]")
	case !slices.Contains(recordTypes, r.Type):
		return constraint(n, "resourceRecordSet.type", r.Type, "Member must satisfy enum value set")
	case r.Weight != nil && *r.Weight < 0:
		return constraint(n, "resourceRecordSet.weight", *r.Weight, "Member must have value greater than or equal to 0")
	case r.Weight != nil && *r.Weight > 255:
		return constraint(n, "resourceRecordSet.weight", *r.Weight, "Member must have value less than or equal to 255")
	case r.TTL != nil && (*r.TTL < 0 || *r.TTL > 2147483647):
		return constraint(n, "resourceRecordSet.tTL", *r.TTL, "Member must have value between 0 and 2147483647")
	case len(r.SetIdentifier) > 128:
		return constraint(n, "resourceRecordSet.setIdentifier", r.SetIdentifier, "Member must have length less than or equal to 128")
	case r.policy() != "simple" && r.SetIdentifier == "":
		return invalidInput("Missing field 'SetIdentifier' %s", where)
	case r.policy() == "simple" && r.SetIdentifier != "":
		return invalidInput("Missing field 'Weight', 'Region', 'Failover', 'GeoLocation', or 'MultiValueAnswer' %s", where)
	case r.Alias != nil && (r.TTL != nil || len(r.Values) > 0):
		return invalidInput("Expected exactly one of [AliasTarget, all of [TTL, and ResourceRecords], or TrafficPolicyInstanceId], "+
			"but found more than one %s", where)
	case r.Alias == nil && (r.TTL == nil || len(r.Values) == 0):
		return invalidInput("Expected exactly one of [AliasTarget, all of [TTL, and ResourceRecords], or TrafficPolicyInstanceId], "+
			"but found none %s", where)
	case r.Alias != nil && (r.Alias.ZoneID == "" || r.Alias.DNSName == ""):
		return invalidInput("Missing field 'HostedZoneId' or 'DNSName' of AliasTarget %s", where)
	case r.Weight != nil && len(r.Values) > 1:
		return invalidInput("Weighted record sets can have only one ResourceRecord %s", where)
	}
	return nil
}

func constraint(n int, member string, value any, rule string) *wire.APIError {
	return wire.Errorf("InvalidInput", "1 validation error detected: Value '%v' at 'changeBatch.changes.%d.member.%s' "+
		"failed to satisfy constraint: %s", value, n, member, rule)
}

func invalidInput(format string, args ...any) *wire.APIError {
	return wire.Errorf("InvalidInput", "Invalid request: "+format, args...)
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

// values checks the record data of addresses.
func (r RecordSet) values() (messages []string) {
	for _, v := range r.Values {
		a, err := netip.ParseAddr(v)
		switch {
		case r.Type == "A" && (err != nil || !a.Is4()):
			messages = append(messages, fmt.Sprintf("Invalid Resource Record: 'FATAL problem: ARRDATAIllegalIPv4Address "+
				"(Value is not a valid IPv4 address) encountered with '%s''", v))
		case r.Type == "AAAA" && (err != nil || !a.Is6()):
			messages = append(messages, fmt.Sprintf("Invalid Resource Record: 'FATAL problem: AAAARRDATAIllegalIPv6Address "+
				"(Value is not a valid IPv6 address) encountered with '%s''", v))
		}
	}
	return messages
}

// stored is the record set as it is kept: names in their canonical spelling.
func (r RecordSet) stored() RecordSet {
	r.Name = canonical(r.Name)
	if r.Alias != nil {
		target := *r.Alias
		if target.DNSName != "" {
			target.DNSName = canonical(target.DNSName)
		}
		r.Alias = &target
	}
	return r
}

// same reports whether a DELETE describes a record set exactly; values may come in
// any order. Both are as stored.
func same(a, b RecordSet) bool {
	a.Values = slices.Sorted(slices.Values(a.Values))
	b.Values = slices.Sorted(slices.Values(b.Values))
	return reflect.DeepEqual(a, b)
}
