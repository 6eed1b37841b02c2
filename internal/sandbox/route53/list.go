package route53

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// String is the change as the log shows it.
func (e edit) String() string {
	s := e.action + " " + e.set.key().String()
	if e.set.Weight != nil {
		s += fmt.Sprintf(" weight=%d", *e.set.Weight)
	}
	return s
}

// maxItems reads a page size. Route 53 lowers what is above its own limit.
func maxItems(q url.Values, most int) (int, error) {
	v := q.Get("maxitems")
	if v == "" {
		return most, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, wire.Errorf("InvalidInput", "Value '%s' at 'maxItems' failed to satisfy constraint: Member must be a number of 1 or more", v)
	}
	return min(n, most), nil
}

// list is ListResourceRecordSets: sorted by reversed labels, from the record named
// on.
func (z *zone) list(q url.Values) (any, error) {
	size, err := maxItems(q, 300)
	if err != nil {
		return nil, err
	}
	from := key{typ: q.Get("type"), id: q.Get("identifier")}
	switch {
	case from.typ != "" && q.Get("name") == "":
		return nil, wire.Errorf("InvalidInput", "The type parameter can be used only with the name parameter")
	case from.id != "" && from.typ == "":
		return nil, wire.Errorf("InvalidInput", "The identifier parameter can be used only with the name and type parameters")
	}
	keys := sorted(z.records)
	if q.Get("name") != "" {
		from.name = canonical(q.Get("name"))
		i, _ := slices.BinarySearchFunc(keys, from, key.compare)
		keys = keys[i:]
	}
	out := listRecordsResponse{Xmlns: xmlns, MaxItems: strconv.Itoa(size), Sets: []recordXML{}}
	for _, k := range keys[:min(size, len(keys))] {
		out.Sets = append(out.Sets, z.records[k].xml())
	}
	if len(keys) > size {
		next := keys[size]
		out.IsTruncated = true
		out.NextRecordName, out.NextRecordType, out.NextRecordIdentifier = next.name, next.typ, next.id
	}
	return out, nil
}

func (z *zone) xml() zoneXML {
	return zoneXML{
		ID: "/hostedzone/" + z.ID, Name: z.Name, CallerReference: "sandbox-" + z.ID,
		Config: configXML{Comment: z.Comment, Private: z.Private}, Count: len(z.records),
	}
}

func (s *Service) listZones(q url.Values) (any, error) {
	size, err := maxItems(q, 100)
	if err != nil {
		return nil, err
	}
	out := listZonesResponse{Xmlns: xmlns, MaxItems: strconv.Itoa(size), Marker: q.Get("marker"), Zones: []zoneXML{}}
	ids := slices.Sorted(maps.Keys(s.zones))
	if out.Marker != "" {
		i, found := slices.BinarySearch(ids, out.Marker)
		if !found {
			return nil, wire.Errorf("NoSuchHostedZone", "No hosted zone found with ID: %s", out.Marker)
		}
		ids = ids[i:]
	}
	for _, id := range ids[:min(size, len(ids))] {
		out.Zones = append(out.Zones, s.zones[id].xml())
	}
	if len(ids) > size {
		out.IsTruncated, out.NextMarker = true, ids[size]
	}
	return out, nil
}

// listZonesByName starts at a name (and a zone of that name); it does not filter.
func (s *Service) listZonesByName(q url.Values) (any, error) {
	size, err := maxItems(q, 100)
	if err != nil {
		return nil, err
	}
	out := listByNameResponse{
		Xmlns: xmlns, MaxItems: strconv.Itoa(size), DNSName: q.Get("dnsname"),
		HostedZoneID: strings.TrimPrefix(q.Get("hostedzoneid"), "/hostedzone/"), Zones: []zoneXML{},
	}
	if out.HostedZoneID != "" && out.DNSName == "" {
		return nil, wire.Errorf("InvalidInput", "The hostedzoneid parameter can be used only with the dnsname parameter")
	}
	zones := slices.SortedFunc(maps.Values(s.zones), func(a, b *zone) int { return a.key().compare(b.key()) })
	if out.DNSName != "" {
		from := key{name: canonical(out.DNSName), typ: out.HostedZoneID}
		zones = slices.DeleteFunc(zones, func(z *zone) bool { return z.key().compare(from) < 0 })
	}
	for _, z := range zones[:min(size, len(zones))] {
		out.Zones = append(out.Zones, z.xml())
	}
	if len(zones) > size {
		out.IsTruncated, out.NextDNSName, out.NextHostedZoneID = true, zones[size].Name, zones[size].ID
	}
	return out, nil
}

// key sorts zones by name, then by id.
func (z *zone) key() key { return key{name: z.Name, typ: z.ID} }
