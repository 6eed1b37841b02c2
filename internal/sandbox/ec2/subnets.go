package ec2

import (
	"encoding/xml"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// The limits of DescribeSubnets and of its filters, from the EC2 API reference.
const (
	leastResults, mostResults = 5, 1000
	mostValues                = 200
)

type subnetXML struct {
	SubnetID                    string   `xml:"subnetId"`
	SubnetArn                   string   `xml:"subnetArn"`
	State                       string   `xml:"state"`
	OwnerID                     string   `xml:"ownerId"`
	VpcID                       string   `xml:"vpcId"`
	CidrBlock                   string   `xml:"cidrBlock"`
	Ipv6CidrBlockAssociationSet struct{} `xml:"ipv6CidrBlockAssociationSet"`
	AvailableIPAddressCount     int      `xml:"availableIpAddressCount"`
	AvailabilityZone            string   `xml:"availabilityZone"`
	AvailabilityZoneID          string   `xml:"availabilityZoneId"`
	DefaultForAz                bool     `xml:"defaultForAz"`
	MapPublicIPOnLaunch         bool     `xml:"mapPublicIpOnLaunch"`
	AssignIpv6AddressOnCreation bool     `xml:"assignIpv6AddressOnCreation"`
	MapCustomerOwnedIPOnLaunch  bool     `xml:"mapCustomerOwnedIpOnLaunch"`
	EnableDNS64                 bool     `xml:"enableDns64"`
	Ipv6Native                  bool     `xml:"ipv6Native"`
	PrivateDNSNameOptions       dnsXML   `xml:"privateDnsNameOptionsOnLaunch"`
	TagSet                      []tagXML `xml:"tagSet>item"`
}

type dnsXML struct {
	HostnameType                    string `xml:"hostnameType"`
	EnableResourceNameDNSARecord    bool   `xml:"enableResourceNameDnsARecord"`
	EnableResourceNameDNSAAAARecord bool   `xml:"enableResourceNameDnsAAAARecord"`
}

type tagXML struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type subnetsXML struct {
	XMLName   xml.Name    `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeSubnetsResponse"`
	RequestID string      `xml:"requestId"`
	Subnets   []subnetXML `xml:"subnetSet>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

func (s *Service) xml(n Subnet) subnetXML {
	prefix, _ := netip.ParsePrefix(n.CIDR) // checked by AddSubnet
	out := subnetXML{
		SubnetID: n.ID, SubnetArn: fmt.Sprintf("arn:aws:ec2:%s:%s:subnet/%s", s.opts.Region, s.opts.Account, n.ID),
		State: "available", OwnerID: s.opts.Account, VpcID: n.VPC, CidrBlock: prefix.Masked().String(),
		AvailableIPAddressCount: s.free(n), AvailabilityZone: n.Zone, AvailabilityZoneID: zoneID(n.Zone),
		PrivateDNSNameOptions: dnsXML{HostnameType: "ip-name"},
	}
	for _, k := range slices.Sorted(maps.Keys(n.Tags)) {
		out.TagSet = append(out.TagSet, tagXML{k, n.Tags[k]})
	}
	return out
}

func (s *Service) describeSubnets(r *request) (any, *wire.APIError) {
	ids, filters := r.list("SubnetId"), r.filters()
	var found []subnetXML
	seen := map[string]bool{}
	for _, n := range s.all() {
		seen[n.ID] = true
		x := s.xml(n)
		fits, apiErr := x.fits(filters)
		if apiErr != nil {
			return nil, apiErr
		}
		if fits && (len(ids) == 0 || slices.Contains(ids, n.ID)) {
			found = append(found, x)
		}
	}
	for _, id := range ids {
		switch {
		case !strings.HasPrefix(id, "subnet-"):
			return nil, wire.Errorf("InvalidSubnetID.Malformed", "Invalid id: %q (expecting \"subnet-...\")", id)
		case !seen[id]:
			return nil, wire.Errorf("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	if len(ids) > 0 && r.params.Get("MaxResults") != "" {
		return nil, wire.Errorf("InvalidParameterCombination", "The parameter subnetIds cannot be used with the parameter maxResults")
	}
	part, next, apiErr := cut(found, r.params.Get("NextToken"), r.params.Get("MaxResults"))
	return subnetsXML{RequestID: r.id, Subnets: part, NextToken: next}, apiErr
}

// values are what a subnet has to show to a filter; false for a filter that there is not.
func (x subnetXML) values(filter string) ([]string, bool) {
	one := func(v string) ([]string, bool) { return []string{v}, true }
	switch filter {
	case "subnet-id":
		return one(x.SubnetID)
	case "subnet-arn":
		return one(x.SubnetArn)
	case "vpc-id":
		return one(x.VpcID)
	case "owner-id":
		return one(x.OwnerID)
	case "state":
		return one(x.State)
	case "cidr-block", "cidr", "cidrBlock":
		return one(x.CidrBlock)
	case "availability-zone", "availabilityZone":
		return one(x.AvailabilityZone)
	case "availability-zone-id", "availabilityZoneId":
		return one(x.AvailabilityZoneID)
	case "available-ip-address-count":
		return one(strconv.Itoa(x.AvailableIPAddressCount))
	case "default-for-az", "defaultForAz":
		return one(strconv.FormatBool(x.DefaultForAz))
	}
	key, byKey := strings.CutPrefix(filter, "tag:")
	if !byKey && filter != "tag-key" {
		return nil, false
	}
	var vs []string
	for _, t := range x.TagSet {
		switch {
		case filter == "tag-key":
			vs = append(vs, t.Key)
		case t.Key == key:
			vs = append(vs, t.Value)
		}
	}
	return vs, true
}

// fits tells whether a subnet passes every filter: one of the filter's values matches.
func (x subnetXML) fits(filters []filter) (bool, *wire.APIError) {
	all := true
	for _, f := range filters {
		if len(f.values) > mostValues {
			return false, wire.Errorf("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", mostValues)
		}
		have, ok := x.values(f.name)
		if !ok {
			return false, wire.Errorf("InvalidParameterValue", "The filter '%s' is invalid", f.name)
		}
		all = all && slices.ContainsFunc(f.values, func(pattern string) bool {
			re := pattern2re(pattern)
			return slices.ContainsFunc(have, re.MatchString)
		})
	}
	return all, nil
}

// pattern2re reads the wildcards of filter values: * for any text, ? for a character.
func pattern2re(pattern string) *regexp.Regexp {
	quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile("^(?s:" + quoted + ")$")
}

// cut is one page of a list; without a size it is the whole list.
func cut[T any](all []T, token, size string) ([]T, string, *wire.APIError) {
	n := max(len(all), 1)
	if size != "" {
		v, err := strconv.Atoi(size)
		if err != nil || v < leastResults || v > mostResults {
			return nil, "", wire.Errorf("InvalidParameterValue", "Value ( %s ) for parameter maxResults is invalid. Expecting a value between %d and %d.", size, leastResults, mostResults)
		}
		n = v
	}
	part, next, ok := wire.Page(all, token, n)
	if !ok {
		return nil, "", wire.Errorf("InvalidNextToken", "The token '%s' is invalid", token)
	}
	return part, next, nil
}
