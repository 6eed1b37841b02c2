package aws

import (
	"context"
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// STSAPI is what WhoAmI needs of STS.
type STSAPI interface {
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// renewing names the credential sources that renew themselves for as long as the
// machine or the pod they belong to lives.
var renewing = map[string]bool{
	"EC2RoleProvider":             true,
	"CredentialsEndpointProvider": true,
	"WebIdentityCredentials":      true,
}

// Expiry is when the credentials of the configuration end for good. It is zero when
// they do not, or when they renew themselves (instance, container and web identity
// roles). For a role assumed by Load it is the end of the credentials that the role
// is assumed with. Credentials of an SSO session are renewed while the session
// lasts, which cannot be told from outside; for these it is the end of the present ones.
func Expiry(ctx context.Context, cfg awssdk.Config) (time.Time, error) {
	provider := cfg.Credentials
	if a, ok := provider.(*assumed); ok {
		provider = a.source
	}
	if provider == nil {
		return time.Time{}, fmt.Errorf("no AWS credentials in the configuration")
	}
	c, err := provider.Retrieve(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read when the AWS credentials end: %w", err)
	}
	if !c.CanExpire || renewing[c.Source] {
		return time.Time{}, nil
	}
	return c.Expires, nil
}

// WhoAmI is the ARN of the caller as STS GetCallerIdentity says it. The call needs
// no permission, so a failure is about the credentials or the endpoint.
func WhoAmI(ctx context.Context, api STSAPI) (string, error) {
	out, err := api.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", fmt.Errorf("ask STS who is calling: %w", err)
	}
	return awssdk.ToString(out.Arn), nil
}
