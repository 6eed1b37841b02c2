package route53

import (
	"encoding/xml"
	"time"
)

// The documents, member by member as in the API's model of 2013-04-01.

type recordXML struct {
	Name             string     `xml:"Name"`
	Type             string     `xml:"Type"`
	SetIdentifier    string     `xml:"SetIdentifier,omitempty"`
	Weight           *int64     `xml:"Weight"`
	Region           string     `xml:"Region,omitempty"`
	Failover         string     `xml:"Failover,omitempty"`
	MultiValueAnswer *bool      `xml:"MultiValueAnswer"`
	TTL              *int64     `xml:"TTL"`
	Records          *valuesXML `xml:"ResourceRecords"`
	Alias            *aliasXML  `xml:"AliasTarget"`
	HealthCheckID    string     `xml:"HealthCheckId,omitempty"`

	// What the sandbox does not keep, so that it is refused and not lost.
	GeoLocation             *struct{} `xml:"GeoLocation"`
	GeoProximityLocation    *struct{} `xml:"GeoProximityLocation"`
	CidrRoutingConfig       *struct{} `xml:"CidrRoutingConfig"`
	TrafficPolicyInstanceID string    `xml:"TrafficPolicyInstanceId,omitempty"`
}

type valuesXML struct {
	Records []valueXML `xml:"ResourceRecord"`
}

type valueXML struct {
	Value string `xml:"Value"`
}

type aliasXML struct {
	HostedZoneID         string `xml:"HostedZoneId"`
	DNSName              string `xml:"DNSName"`
	EvaluateTargetHealth bool   `xml:"EvaluateTargetHealth"`
}

func (x recordXML) set() RecordSet {
	r := RecordSet{
		Name: x.Name, Type: x.Type, SetIdentifier: x.SetIdentifier, Weight: x.Weight, Region: x.Region,
		Failover: x.Failover, MultiValue: x.MultiValueAnswer, TTL: x.TTL, HealthCheckID: x.HealthCheckID,
	}
	if x.Records != nil {
		for _, v := range x.Records.Records {
			r.Values = append(r.Values, v.Value)
		}
	}
	if a := x.Alias; a != nil {
		r.Alias = &Alias{ZoneID: a.HostedZoneID, DNSName: a.DNSName, EvaluateTargetHealth: a.EvaluateTargetHealth}
	}
	return r
}

func (r RecordSet) xml() recordXML {
	x := recordXML{
		Name: r.Name, Type: r.Type, SetIdentifier: r.SetIdentifier, Weight: r.Weight, Region: r.Region,
		Failover: r.Failover, MultiValueAnswer: r.MultiValue, TTL: r.TTL, HealthCheckID: r.HealthCheckID,
	}
	if len(r.Values) > 0 {
		x.Records = &valuesXML{}
		for _, v := range r.Values {
			x.Records.Records = append(x.Records.Records, valueXML{v})
		}
	}
	if a := r.Alias; a != nil {
		x.Alias = &aliasXML{a.ZoneID, a.DNSName, a.EvaluateTargetHealth}
	}
	return x
}

type changeRequest struct {
	Batch struct {
		Comment string      `xml:"Comment"`
		Changes []changeXML `xml:"Changes>Change"`
	} `xml:"ChangeBatch"`
}

type changeXML struct {
	Action string    `xml:"Action"`
	Set    recordXML `xml:"ResourceRecordSet"`
}

type changeResponse struct {
	XMLName xml.Name
	Info    changeInfo `xml:"ChangeInfo"`
}

type changeInfo struct {
	ID          string    `xml:"Id"`
	Status      string    `xml:"Status"`
	SubmittedAt time.Time `xml:"SubmittedAt"`
	Comment     string    `xml:"Comment,omitempty"`
}

type listRecordsResponse struct {
	XMLName              xml.Name    `xml:"ListResourceRecordSetsResponse"`
	Xmlns                string      `xml:"xmlns,attr"`
	Sets                 []recordXML `xml:"ResourceRecordSets>ResourceRecordSet"`
	IsTruncated          bool        `xml:"IsTruncated"`
	NextRecordName       string      `xml:"NextRecordName,omitempty"`
	NextRecordType       string      `xml:"NextRecordType,omitempty"`
	NextRecordIdentifier string      `xml:"NextRecordIdentifier,omitempty"`
	MaxItems             string      `xml:"MaxItems"`
}

type zoneXML struct {
	ID              string    `xml:"Id"`
	Name            string    `xml:"Name"`
	CallerReference string    `xml:"CallerReference"`
	Config          configXML `xml:"Config"`
	Count           int       `xml:"ResourceRecordSetCount"`
}

type configXML struct {
	Comment string `xml:"Comment,omitempty"`
	Private bool   `xml:"PrivateZone"`
}

type listZonesResponse struct {
	XMLName     xml.Name  `xml:"ListHostedZonesResponse"`
	Xmlns       string    `xml:"xmlns,attr"`
	Zones       []zoneXML `xml:"HostedZones>HostedZone"`
	Marker      string    `xml:"Marker,omitempty"`
	IsTruncated bool      `xml:"IsTruncated"`
	NextMarker  string    `xml:"NextMarker,omitempty"`
	MaxItems    string    `xml:"MaxItems"`
}

type listByNameResponse struct {
	XMLName          xml.Name  `xml:"ListHostedZonesByNameResponse"`
	Xmlns            string    `xml:"xmlns,attr"`
	Zones            []zoneXML `xml:"HostedZones>HostedZone"`
	DNSName          string    `xml:"DNSName,omitempty"`
	HostedZoneID     string    `xml:"HostedZoneId,omitempty"`
	IsTruncated      bool      `xml:"IsTruncated"`
	NextDNSName      string    `xml:"NextDNSName,omitempty"`
	NextHostedZoneID string    `xml:"NextHostedZoneId,omitempty"`
	MaxItems         string    `xml:"MaxItems"`
}

type getZoneResponse struct {
	XMLName     xml.Name `xml:"GetHostedZoneResponse"`
	Xmlns       string   `xml:"xmlns,attr"`
	Zone        zoneXML  `xml:"HostedZone"`
	NameServers []string `xml:"DelegationSet>NameServers>NameServer,omitempty"`
}

// invalidBatchResponse is how Route 53 answers a batch that it refuses: the texts in
// brackets in the message, as clients print it
// (https://github.com/boto/boto/issues/2887 and many after it), and one by one in the
// member that the API's model has for them.
type invalidBatchResponse struct {
	XMLName xml.Name `xml:"ErrorResponse"`
	Xmlns   string   `xml:"xmlns,attr"`
	Error   struct {
		Type     string   `xml:"Type"`
		Code     string   `xml:"Code"`
		Message  string   `xml:"Message"`
		Messages []string `xml:"Messages>Message"`
	} `xml:"Error"`
	RequestID string `xml:"RequestId"`
}

// documentedBatchResponse is the form of the same error in the API reference, which
// the SDK knows too. Faults answer in it, so that both forms are met.
type documentedBatchResponse struct {
	XMLName   xml.Name `xml:"InvalidChangeBatch"`
	Xmlns     string   `xml:"xmlns,attr"`
	Messages  []string `xml:"Messages>Message"`
	RequestID string   `xml:"RequestId"`
}
