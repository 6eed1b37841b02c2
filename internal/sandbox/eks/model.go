package eks

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// epoch is a time as restJson1 has it: seconds, with the milliseconds behind the
// point.
type epoch time.Time

// MarshalJSON implements json.Marshaler.
func (t epoch) MarshalJSON() ([]byte, error) {
	ms := time.Time(t).UnixMilli()
	return []byte(strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64)), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *epoch) UnmarshalJSON(b []byte) error {
	var seconds float64
	if err := json.Unmarshal(b, &seconds); err != nil {
		return err
	}
	*t = epoch(time.UnixMilli(int64(math.Round(seconds * 1000))).UTC())
	return nil
}

func at(t time.Time) *epoch {
	if t.IsZero() {
		return nil
	}
	e := epoch(t)
	return &e
}

// The answers, member by member as in the API's model. Pointers and slices without
// a value travel as null, which is what EKS sends.

type clusterJSON struct {
	Name                 string            `json:"name"`
	Arn                  string            `json:"arn"`
	CreatedAt            *epoch            `json:"createdAt"`
	Version              string            `json:"version"`
	Endpoint             *string           `json:"endpoint"`
	RoleArn              string            `json:"roleArn"`
	ResourcesVpcConfig   vpcJSON           `json:"resourcesVpcConfig"`
	NetworkConfig        networkJSON       `json:"kubernetesNetworkConfig"`
	Logging              loggingJSON       `json:"logging"`
	Identity             identityJSON      `json:"identity"`
	Status               string            `json:"status"`
	CertificateAuthority certificateJSON   `json:"certificateAuthority"`
	ClientRequestToken   *string           `json:"clientRequestToken"`
	PlatformVersion      string            `json:"platformVersion"`
	Tags                 map[string]string `json:"tags"`
	EncryptionConfig     []struct{}        `json:"encryptionConfig"`
	ConnectorConfig      *struct{}         `json:"connectorConfig"`
	ID                   *string           `json:"id"`
	Health               healthJSON        `json:"health"`
	OutpostConfig        *struct{}         `json:"outpostConfig"`
	AccessConfig         accessJSON        `json:"accessConfig"`
	UpgradePolicy        policyJSON        `json:"upgradePolicy"`
	ZonalShiftConfig     *struct{}         `json:"zonalShiftConfig"`
	RemoteNetworkConfig  *struct{}         `json:"remoteNetworkConfig"`
	ComputeConfig        *computeJSON      `json:"computeConfig"`
	StorageConfig        *struct{}         `json:"storageConfig"`
	DeletionProtection   bool              `json:"deletionProtection"`
}

type vpcJSON struct {
	SubnetIDs              []string `json:"subnetIds"`
	SecurityGroupIDs       []string `json:"securityGroupIds"`
	ClusterSecurityGroupID string   `json:"clusterSecurityGroupId"`
	VpcID                  string   `json:"vpcId"`
	EndpointPublicAccess   bool     `json:"endpointPublicAccess"`
	EndpointPrivateAccess  bool     `json:"endpointPrivateAccess"`
	PublicAccessCidrs      []string `json:"publicAccessCidrs"`
}

type networkJSON struct {
	ServiceIpv4Cidr      string      `json:"serviceIpv4Cidr"`
	ServiceIpv6Cidr      *string     `json:"serviceIpv6Cidr"`
	IPFamily             string      `json:"ipFamily"`
	ElasticLoadBalancing enabledJSON `json:"elasticLoadBalancing"`
}

type enabledJSON struct {
	Enabled bool `json:"enabled"`
}

type loggingJSON struct {
	ClusterLogging []logSetupJSON `json:"clusterLogging"`
}

type logSetupJSON struct {
	Types   []string `json:"types"`
	Enabled bool     `json:"enabled"`
}

type identityJSON struct {
	Oidc struct {
		Issuer string `json:"issuer"`
	} `json:"oidc"`
}

type certificateJSON struct {
	Data *string `json:"data"`
}

type healthJSON struct {
	Issues []issueJSON `json:"issues"`
}

type issueJSON struct {
	Code        string   `json:"code"`
	Message     string   `json:"message"`
	ResourceIDs []string `json:"resourceIds"`
}

type accessJSON struct {
	BootstrapAdmin     *bool  `json:"bootstrapClusterCreatorAdminPermissions"`
	AuthenticationMode string `json:"authenticationMode"`
}

type computeJSON struct {
	Enabled     bool     `json:"enabled"`
	NodePools   []string `json:"nodePools"`
	NodeRoleArn *string  `json:"nodeRoleArn"`
}

type policyJSON struct {
	SupportType string `json:"supportType"`
}

type versionJSON struct {
	ClusterVersion           string `json:"clusterVersion"`
	ClusterType              string `json:"clusterType"`
	DefaultPlatformVersion   string `json:"defaultPlatformVersion"`
	DefaultVersion           bool   `json:"defaultVersion"`
	ReleaseDate              *epoch `json:"releaseDate"`
	EndOfStandardSupportDate *epoch `json:"endOfStandardSupportDate"`
	EndOfExtendedSupportDate *epoch `json:"endOfExtendedSupportDate"`
	Status                   string `json:"status"`
	VersionStatus            string `json:"versionStatus"`
	KubernetesPatchVersion   string `json:"kubernetesPatchVersion"`
}

type updateJSON struct {
	ID        string      `json:"id"`
	Status    string      `json:"status"`
	Type      string      `json:"type"`
	Params    []paramJSON `json:"params"`
	CreatedAt *epoch      `json:"createdAt"`
	Errors    []errorJSON `json:"errors"`
	// Cancellation is there once somebody asked for one.
	Cancellation *cancellationJSON `json:"cancellation,omitempty"`
}

type cancellationJSON struct {
	Status string  `json:"status"`
	Reason *string `json:"reason"`
}

type paramJSON struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

type errorJSON struct {
	ErrorCode    string   `json:"errorCode"`
	ErrorMessage string   `json:"errorMessage"`
	ResourceIDs  []string `json:"resourceIds"`
}

type addonJSON struct {
	AddonName              string            `json:"addonName"`
	ClusterName            string            `json:"clusterName"`
	Status                 string            `json:"status"`
	AddonVersion           string            `json:"addonVersion"`
	Health                 healthJSON        `json:"health"`
	AddonArn               string            `json:"addonArn"`
	CreatedAt              *epoch            `json:"createdAt"`
	ModifiedAt             *epoch            `json:"modifiedAt"`
	ServiceAccountRoleArn  *string           `json:"serviceAccountRoleArn"`
	Tags                   map[string]string `json:"tags"`
	Publisher              *string           `json:"publisher"`
	Owner                  *string           `json:"owner"`
	ConfigurationValues    *string           `json:"configurationValues"`
	PodIdentityAssociation []string          `json:"podIdentityAssociations"`
}

type addonInfoJSON struct {
	AddonName     string             `json:"addonName"`
	Type          string             `json:"type"`
	AddonVersions []addonVersionJSON `json:"addonVersions"`
	Publisher     string             `json:"publisher"`
	Owner         string             `json:"owner"`
}

type addonVersionJSON struct {
	AddonVersion           string              `json:"addonVersion"`
	Architecture           []string            `json:"architecture"`
	ComputeTypes           []string            `json:"computeTypes"`
	Compatibilities        []compatibilityJSON `json:"compatibilities"`
	RequiresConfiguration  bool                `json:"requiresConfiguration"`
	RequiresIamPermissions bool                `json:"requiresIamPermissions"`
}

type compatibilityJSON struct {
	ClusterVersion   string   `json:"clusterVersion"`
	PlatformVersions []string `json:"platformVersions"`
	DefaultVersion   bool     `json:"defaultVersion"`
}

type profileJSON struct {
	FargateProfileName  string            `json:"fargateProfileName"`
	FargateProfileArn   string            `json:"fargateProfileArn"`
	ClusterName         string            `json:"clusterName"`
	CreatedAt           *epoch            `json:"createdAt"`
	PodExecutionRoleArn string            `json:"podExecutionRoleArn"`
	Subnets             []string          `json:"subnets"`
	Selectors           []selectorJSON    `json:"selectors"`
	Status              string            `json:"status"`
	Tags                map[string]string `json:"tags"`
	Health              healthJSON        `json:"health"`
}

type selectorJSON struct {
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

type insightJSON struct {
	ID                 string     `json:"id"`
	Name               string     `json:"name"`
	Category           string     `json:"category"`
	KubernetesVersion  *string    `json:"kubernetesVersion"`
	LastRefreshTime    *epoch     `json:"lastRefreshTime"`
	LastTransitionTime *epoch     `json:"lastTransitionTime"`
	Description        string     `json:"description"`
	InsightStatus      statusJSON `json:"insightStatus"`
}

type statusJSON struct {
	Status string  `json:"status"`
	Reason *string `json:"reason"`
}

type insightDetailJSON struct {
	insightJSON
	Recommendation          string                `json:"recommendation"`
	AdditionalInfo          map[string]string     `json:"additionalInfo"`
	Resources               []insightResourceJSON `json:"resources"`
	CategorySpecificSummary summaryJSON           `json:"categorySpecificSummary"`
}

type insightResourceJSON struct {
	InsightStatus         statusJSON `json:"insightStatus"`
	KubernetesResourceURI *string    `json:"kubernetesResourceUri"`
	Arn                   *string    `json:"arn"`
}

type summaryJSON struct {
	DeprecationDetails        []deprecationJSON `json:"deprecationDetails"`
	AddonCompatibilityDetails []addonCompatJSON `json:"addonCompatibilityDetails"`
}

type deprecationJSON struct {
	Usage                          string       `json:"usage"`
	ReplacedWith                   *string      `json:"replacedWith"`
	StopServingVersion             string       `json:"stopServingVersion"`
	StartServingReplacementVersion *string      `json:"startServingReplacementVersion"`
	ClientStats                    []clientJSON `json:"clientStats"`
}

type clientJSON struct {
	UserAgent                  string `json:"userAgent"`
	NumberOfRequestsLast30Days int32  `json:"numberOfRequestsLast30Days"`
	LastRequestTime            *epoch `json:"lastRequestTime"`
}

type addonCompatJSON struct {
	Name               string   `json:"name"`
	CompatibleVersions []string `json:"compatibleVersions"`
}

// The inputs that come in a body.

type updateVersionInput struct {
	Version            string `json:"version"`
	ClientRequestToken string `json:"clientRequestToken"`
	Force              bool   `json:"force"`
	RollbackConfig     *struct {
		TimeoutMinutes *int32 `json:"timeoutMinutes"`
	} `json:"rollbackConfig"`
}

type updateAddonInput struct {
	AddonVersion            *string        `json:"addonVersion"`
	ClientRequestToken      string         `json:"clientRequestToken"`
	ConfigurationValues     *string        `json:"configurationValues"`
	PodIdentityAssociations *[]podIdentity `json:"podIdentityAssociations"`
	ResolveConflicts        *string        `json:"resolveConflicts"`
	ServiceAccountRoleArn   *string        `json:"serviceAccountRoleArn"`
}

type podIdentity struct {
	RoleArn        string `json:"roleArn"`
	ServiceAccount string `json:"serviceAccount"`
}

// asked is the request without its token, to tell one from another.
func (in updateAddonInput) asked(addon string) string {
	in.ClientRequestToken = ""
	b, _ := json.Marshal(in) // nothing in it can fail to encode
	return "addon " + addon + " " + string(b)
}

type listInsightsInput struct {
	Filter struct {
		Categories         []string `json:"categories"`
		KubernetesVersions []string `json:"kubernetesVersions"`
		Statuses           []string `json:"statuses"`
	} `json:"filter"`
	MaxResults *int   `json:"maxResults"`
	NextToken  string `json:"nextToken"`
}
