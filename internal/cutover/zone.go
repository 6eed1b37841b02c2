package cutover

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	eksaws "github.com/eksbg/eksbg/internal/aws"
)

// zonePage is the highest number of hosted zones, or of record sets, that Route 53
// gives in one page (ListResourceRecordSets: 300).
const (
	zonePage   = 100
	recordPage = 300
)

// zone is a hosted zone as the plan file names it; its id is looked up once.
type zone struct {
	api  Route53API
	name string // canonical, may be empty when id is given
	id   string // may be empty when name is given

	mu    sync.Mutex
	found *foundZone
}

type foundZone struct{ id, name string }

// resolve gives the zone's id and canonical name.
func (z *zone) resolve(ctx context.Context) (foundZone, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.found != nil {
		return *z.found, nil
	}
	found, err := z.lookUp(ctx)
	if err != nil {
		return foundZone{}, err
	}
	z.found = &found
	return found, nil
}

func (z *zone) lookUp(ctx context.Context) (foundZone, error) {
	if z.id == "" {
		return z.byName(ctx)
	}
	out, err := z.api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: aws.String(z.id)})
	switch {
	case eksaws.IsNotFound(err):
		return foundZone{}, fmt.Errorf("there is no hosted zone %s in this account: "+
			"set zoneID under traffic.route53 to one that `aws route53 list-hosted-zones` shows", z.id)
	case err != nil:
		return foundZone{}, fmt.Errorf("read hosted zone %s: %w", z.id, err)
	}
	got := foundZone{id: zoneID(out.HostedZone), name: canonicalName(aws.ToString(out.HostedZone.Name))}
	if z.name != "" && z.name != got.name {
		return foundZone{}, fmt.Errorf("hosted zone %s is %s, not %s: make zone and zoneID under traffic.route53 agree", z.id, got.name, z.name)
	}
	return got, nil
}

// byName finds the one zone of exactly this name. ListHostedZonesByName starts at a
// name and does not filter, and a public and private zones may share a name.
func (z *zone) byName(ctx context.Context) (foundZone, error) {
	var same []r53types.HostedZone
	in := &route53.ListHostedZonesByNameInput{DNSName: aws.String(z.name), MaxItems: aws.Int32(zonePage)}
	for {
		out, err := z.api.ListHostedZonesByName(ctx, in)
		if err != nil {
			return foundZone{}, fmt.Errorf("look for hosted zone %s: %w", z.name, err)
		}
		past := false
		for _, hz := range out.HostedZones {
			if sameName(aws.ToString(hz.Name), z.name) {
				same = append(same, hz)
			} else {
				past = true
			}
		}
		if past || !out.IsTruncated {
			break
		}
		in.DNSName, in.HostedZoneId = out.NextDNSName, out.NextHostedZoneId
	}
	switch len(same) {
	case 0:
		return foundZone{}, fmt.Errorf("there is no hosted zone %s in this account: "+
			"set zone under traffic.route53 to one that `aws route53 list-hosted-zones` shows", z.name)
	case 1:
		return foundZone{id: zoneID(&same[0]), name: canonicalName(aws.ToString(same[0].Name))}, nil
	}
	var ids []string
	for i := range same {
		kind := "public"
		if same[i].Config != nil && same[i].Config.PrivateZone {
			kind = "private"
		}
		ids = append(ids, fmt.Sprintf("%s (%s)", zoneID(&same[i]), kind))
	}
	return foundZone{}, fmt.Errorf("%d hosted zones are named %s: %s; set zoneID under traffic.route53 to the one that is meant",
		len(same), z.name, strings.Join(ids, ", "))
}

func zoneID(hz *r53types.HostedZone) string {
	return strings.TrimPrefix(aws.ToString(hz.Id), "/hostedzone/")
}

// each calls visit for every record set from a name on, in Route 53's order, until
// visit says that it has seen enough. Nothing is written while paging.
func (z *zone) each(ctx context.Context, from string, visit func(r53types.ResourceRecordSet) (more bool)) error {
	found, err := z.resolve(ctx)
	if err != nil {
		return err
	}
	in := &route53.ListResourceRecordSetsInput{
		HostedZoneId: aws.String(found.id), StartRecordName: aws.String(from), MaxItems: aws.Int32(recordPage),
	}
	for {
		out, err := z.api.ListResourceRecordSets(ctx, in)
		if err != nil {
			return fmt.Errorf("read record sets of zone %s (%s): %w", found.name, found.id, err)
		}
		for _, set := range out.ResourceRecordSets {
			if !visit(set) {
				return nil
			}
		}
		if !out.IsTruncated {
			return nil
		}
		in.StartRecordName, in.StartRecordType, in.StartRecordIdentifier = out.NextRecordName, out.NextRecordType, out.NextRecordIdentifier
	}
}
