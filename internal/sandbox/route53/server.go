package route53

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

const base = "/2013-04-01/"

// invalidBatch is an InvalidChangeBatch, whose form is not that of other errors.
type invalidBatch struct{ messages []string }

func (e *invalidBatch) Error() string { return "InvalidChangeBatch: " + strings.Join(e.messages, "; ") }

// operation names a request by method and path; id is that of the zone or change.
func operation(r *http.Request) (name, id string) {
	path, ok := strings.CutPrefix(r.URL.Path, base)
	if !ok {
		return "Unknown", r.URL.Path
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && len(parts) == 1 && parts[0] == "hostedzone":
		return "ListHostedZones", ""
	case r.Method == http.MethodGet && len(parts) == 1 && parts[0] == "hostedzonesbyname":
		return "ListHostedZonesByName", ""
	case r.Method == http.MethodGet && len(parts) == 2 && parts[0] == "hostedzone":
		return "GetHostedZone", parts[1]
	case r.Method == http.MethodGet && len(parts) == 2 && parts[0] == "change":
		return "GetChange", parts[1]
	case len(parts) == 3 && parts[0] == "hostedzone" && parts[2] == "rrset" && r.Method == http.MethodGet:
		return "ListResourceRecordSets", parts[1]
	case len(parts) == 3 && parts[0] == "hostedzone" && parts[2] == "rrset" && r.Method == http.MethodPost:
		return "ChangeResourceRecordSets", parts[1]
	}
	return "Unknown", r.URL.Path
}

// Classify implements wire.Service: route53:ChangeResourceRecordSets and so on; the
// object is the zone's id, or the change's.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call {
	name, id := operation(r)
	return wire.Call{Name: "route53:" + name, Object: id, Changing: name == "ChangeResourceRecordSets"}
}

// WriteFault implements wire.Service; an InvalidChangeBatch takes the form that the
// API reference has for it.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	if f.Error == "InvalidChangeBatch" {
		write(w, http.StatusBadRequest, documentedBatchResponse{Xmlns: xmlns, Messages: []string{f.Message}, RequestID: uuid.NewString()})
		return
	}
	writeError(w, wire.QueryFault(f))
}

func writeError(w http.ResponseWriter, err error) {
	if batch, ok := errors.AsType[*invalidBatch](err); ok {
		out := invalidBatchResponse{Xmlns: xmlns, RequestID: uuid.NewString()}
		out.Error.Type, out.Error.Code, out.Error.Messages = "Sender", "InvalidChangeBatch", batch.messages
		out.Error.Message = "[" + strings.Join(batch.messages, ", ") + "]"
		write(w, http.StatusBadRequest, out)
		return
	}
	wire.WriteXMLError(w, xmlns, wire.AsAPIError(err))
}

func write(w http.ResponseWriter, status int, document any) {
	body, err := xml.Marshal(document)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	wire.WriteXML(w, status, uuid.NewString(), body)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	answer, err := s.do(r, body)
	if err != nil {
		wire.Note(r.Context(), "error", err.Error())
		writeError(w, err)
		return
	}
	write(w, http.StatusOK, answer)
}

func (s *Service) do(r *http.Request, body []byte) (any, error) {
	// Signatures are made by wall clocks, whatever drives the service.
	caller, err := s.opts.Keys.Check(r, body, "route53", time.Now())
	if err != nil {
		return nil, wire.QueryAuthError(err)
	}
	wire.NoteCaller(r.Context(), caller.ARN)
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	name, id := operation(r)
	switch name {
	case "ListHostedZones":
		return s.listZones(r.URL.Query())
	case "ListHostedZonesByName":
		return s.listZonesByName(r.URL.Query())
	case "GetChange":
		return s.getChange(id, now)
	case "Unknown":
		return nil, &wire.APIError{Status: http.StatusNotFound, Code: "UnknownOperationException", Message: "The requested operation is not part of the sandbox"}
	}
	z := s.zones[id]
	if z == nil {
		return nil, &wire.APIError{Status: http.StatusNotFound, Code: "NoSuchHostedZone", Message: "No hosted zone found with ID: " + id}
	}
	switch name {
	case "GetHostedZone":
		out := getZoneResponse{Xmlns: xmlns, Zone: z.xml()}
		if !z.Private {
			out.NameServers = nameServers()
		}
		return out, nil
	case "ListResourceRecordSets":
		return z.list(r.URL.Query())
	}
	return s.change(r, z, body, now)
}

// change is ChangeResourceRecordSets. mu is held.
func (s *Service) change(r *http.Request, z *zone, body []byte, now time.Time) (any, error) {
	var in changeRequest
	if err := xml.Unmarshal(body, &in); err != nil {
		return nil, wire.Errorf("InvalidInput", "Invalid XML ; %v", err)
	}
	if len(in.Batch.Changes) == 0 || len(in.Batch.Changes) > 1000 {
		return nil, wire.Errorf("InvalidInput", "1 validation error detected: Value at 'changeBatch.changes' failed to satisfy "+
			"constraint: Member must have length between 1 and 1000")
	}
	var batch []edit
	var noted []string
	for _, c := range in.Batch.Changes {
		if x := c.Set; x.GeoLocation != nil || x.GeoProximityLocation != nil || x.CidrRoutingConfig != nil || x.TrafficPolicyInstanceID != "" {
			return nil, wire.Errorf("InvalidInput", "The sandbox keeps no geolocation, geoproximity, CIDR or traffic policy records (%s)", x.Name)
		}
		e := edit{c.Action, c.Set.set()}
		batch = append(batch, e)
		noted = append(noted, e.String())
	}
	wire.Note(r.Context(), "changes", noted)
	after, messages, invalid := z.apply(batch)
	switch {
	case invalid != nil:
		return nil, invalid
	case len(messages) > 0:
		return nil, &invalidBatch{messages}
	}
	z.sync(now)
	c := &change{id: newID(), comment: in.Batch.Comment, submitted: now, at: now.Add(s.opts.Propagation), after: after}
	z.records = after
	z.pending = append(z.pending, c)
	s.changes[c.id] = c
	wire.Note(r.Context(), "change", c.id)
	return changeResponse{XMLName: root("ChangeResourceRecordSetsResponse"), Info: c.info(now)}, nil
}

func newID() string {
	return "C" + strings.ToUpper(strings.ReplaceAll(uuid.NewString(), "-", ""))[:20]
}

func root(name string) xml.Name { return xml.Name{Space: xmlns, Local: name} }

func (c *change) info(now time.Time) changeInfo {
	status := "PENDING"
	if !now.Before(c.at) {
		status = "INSYNC"
	}
	return changeInfo{ID: "/change/" + c.id, Status: status, SubmittedAt: c.submitted.UTC().Truncate(time.Millisecond), Comment: c.comment}
}

func (s *Service) getChange(id string, now time.Time) (any, error) {
	c := s.changes[id]
	if c == nil {
		return nil, &wire.APIError{Status: http.StatusNotFound, Code: "NoSuchChange", Message: "Could not find resource with ID: " + id}
	}
	return changeResponse{XMLName: root("GetChangeResponse"), Info: c.info(now)}, nil
}
