package eks

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// route is one operation: its method and path as in the API's model.
type route struct {
	operation, method, path string
	changing                bool
	serve                   func(*Service, *request) (any, *Error)
}

// request is what an operation gets.
type request struct {
	*http.Request
	vars  map[string]string
	query url.Values
	body  []byte
	now   time.Time
}

var routes = []route{
	{"ListClusters", "GET", "/clusters", false, (*Service).listClusters},
	{"DescribeCluster", "GET", "/clusters/{cluster}", false, (*Service).describeCluster},
	{"CreateCluster", "POST", "/clusters", true, (*Service).createCluster},
	{"DeleteCluster", "DELETE", "/clusters/{cluster}", true, (*Service).deleteCluster},
	{"DescribeClusterVersions", "GET", "/cluster-versions", false, (*Service).describeClusterVersions},
	{"UpdateClusterVersion", "POST", "/clusters/{cluster}/updates", true, (*Service).updateClusterVersion},
	{"ListUpdates", "GET", "/clusters/{cluster}/updates", false, (*Service).listUpdates},
	{"DescribeUpdate", "GET", "/clusters/{cluster}/updates/{update}", false, (*Service).describeUpdate},
	{"CancelUpdate", "POST", "/clusters/{cluster}/updates/{update}/cancel-update", true, (*Service).cancelUpdate},
	{"ListAddons", "GET", "/clusters/{cluster}/addons", false, (*Service).listAddons},
	{"DescribeAddon", "GET", "/clusters/{cluster}/addons/{addon}", false, (*Service).describeAddon},
	{"UpdateAddon", "POST", "/clusters/{cluster}/addons/{addon}/update", true, (*Service).serveUpdateAddon},
	{"CreateAddon", "POST", "/clusters/{cluster}/addons", true, (*Service).createAddon},
	{"DeleteAddon", "DELETE", "/clusters/{cluster}/addons/{addon}", true, (*Service).deleteAddon},
	{"DescribeAddonVersions", "GET", "/addons/supported-versions", false, (*Service).describeAddonVersions},
	{"ListFargateProfiles", "GET", "/clusters/{cluster}/fargate-profiles", false, (*Service).listFargateProfiles},
	{"DescribeFargateProfile", "GET", "/clusters/{cluster}/fargate-profiles/{profile}", false, (*Service).describeFargateProfile},
	{"CreateFargateProfile", "POST", "/clusters/{cluster}/fargate-profiles", true, (*Service).createFargateProfile},
	{"DeleteFargateProfile", "DELETE", "/clusters/{cluster}/fargate-profiles/{profile}", true, (*Service).deleteFargateProfile},
	{"ListNodegroups", "GET", "/clusters/{cluster}/node-groups", false, (*Service).listNodegroups},
	{"DescribeNodegroup", "GET", "/clusters/{cluster}/node-groups/{nodegroup}", false, (*Service).describeNodegroup},
	{"UpdateNodegroupVersion", "POST", "/clusters/{cluster}/node-groups/{nodegroup}/update-version", true, (*Service).updateNodegroupVersion},
	{"UpdateNodegroupConfig", "POST", "/clusters/{cluster}/node-groups/{nodegroup}/update-config", true, (*Service).updateNodegroupConfig},
	{"ListInsights", "POST", "/clusters/{cluster}/insights", false, (*Service).listInsights},
	{"DescribeInsight", "GET", "/clusters/{cluster}/insights/{insight}", false, (*Service).describeInsight},
	{"StartInsightsRefresh", "POST", "/clusters/{cluster}/insights-refresh", true, (*Service).startInsightsRefresh},
	{"DescribeInsightsRefresh", "GET", "/clusters/{cluster}/insights-refresh", false, (*Service).describeInsightsRefresh},
}

type matched struct {
	route
	vars map[string]string
}

// match finds the operation of a request by method and path.
func match(r *http.Request) (matched, bool) {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for _, at := range routes {
		want := strings.Split(strings.Trim(at.path, "/"), "/")
		if at.method != r.Method || len(want) != len(parts) {
			continue
		}
		vars := map[string]string{}
		fits := true
		for i, part := range want {
			name, isVar := strings.CutPrefix(part, "{")
			if !isVar {
				fits = fits && part == parts[i]
				continue
			}
			value, err := url.PathUnescape(parts[i])
			fits = fits && err == nil && value != ""
			vars[strings.TrimSuffix(name, "}")] = value
		}
		if fits {
			return matched{at, vars}, true
		}
	}
	return matched{}, false
}

// Classify implements wire.Service: eks:UpdateClusterVersion and so on; the object
// is the cluster, or cluster/NAME of an add-on, node group or Fargate profile.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call {
	at, ok := match(r)
	if !ok {
		return wire.Call{Name: "eks:Unknown", Object: r.URL.Path, Changing: r.Method != http.MethodGet}
	}
	object := at.vars["cluster"]
	if at.operation == "CreateCluster" {
		object = named(body, "name")
	}
	for of, member := range map[string]string{"addon": "addonName", "profile": "fargateProfileName", "nodegroup": ""} {
		name := at.vars[of]
		if name == "" && at.operation == creates[of] {
			name = named(body, member)
		}
		if name != "" {
			object += "/" + name
		}
	}
	return wire.Call{Name: "eks:" + at.operation, Object: object, Changing: at.changing}
}

// creates are the operations that name what they make in their body.
var creates = map[string]string{"addon": "CreateAddon", "profile": "CreateFargateProfile"}

// named is a member of a body, empty where there is none.
func named(body []byte, member string) string {
	var members map[string]json.RawMessage
	var name string
	if json.Unmarshal(body, &members) == nil {
		_ = json.Unmarshal(members[member], &name) // what is no string is refused when it is served
	}
	return name
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	result, apiErr := s.do(r, body)
	if apiErr != nil {
		wire.Note(r.Context(), "error", apiErr.Error())
		apiErr.write(w)
		return
	}
	writeJSON(w, http.StatusOK, result)
}

func (s *Service) do(r *http.Request, body []byte) (any, *Error) {
	// Signatures are made by wall clocks, whatever drives the service.
	key, err := s.opts.Keys.Check(r, body, "eks", time.Now())
	if err != nil {
		return nil, authError(err)
	}
	wire.NoteCaller(r.Context(), key.ARN)
	at, ok := match(r)
	if !ok {
		return nil, &Error{Status: 404, Code: "UnknownOperationException", Message: "The requested operation is not part of the sandbox"}
	}
	s.catchUp()
	return at.serve(s, &request{Request: r, vars: at.vars, query: r.URL.Query(), body: body, now: s.opts.Clock.Now()})
}

// input decodes the body of a request; members that the API does not have are
// ignored, as AWS does.
func (r *request) input(into any) *Error {
	if len(r.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return &Error{Status: 400, Code: "InvalidRequestException", Message: "Invalid request body: " + err.Error(), Cluster: r.vars["cluster"]}
	}
	return nil
}

// page cuts one page out of a list. token and max are those of the request; next is
// empty on the last page.
func page[T any](all []T, token, maxResults string, most int) (part []T, next *string, _ *Error) {
	size := most
	if maxResults != "" {
		n, err := strconv.Atoi(maxResults)
		if err != nil || n < 1 || n > most {
			return nil, nil, &Error{Status: 400, Code: "InvalidParameterException", Message: "maxResults must be between 1 and " + strconv.Itoa(most)}
		}
		size = n
	}
	part, following, ok := wire.Page(all, token, size)
	switch {
	case !ok:
		return nil, nil, &Error{Status: 400, Code: "InvalidParameterException", Message: "nextToken is invalid"}
	case following != "":
		next = &following
	}
	return part, next, nil
}
