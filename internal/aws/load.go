package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	"k8s.io/utils/clock"
)

const (
	// expiryWindow is how long before their end credentials are renewed, so that no
	// call starts with ones that end while it is under way. The SDK's default is 0.
	expiryWindow = 5 * time.Minute
	// dialTimeout bounds the connection to an endpoint; a few of them fit into the
	// 30 s after which a dead endpoint is an error before the first change.
	dialTimeout = 5 * time.Second
	// roleSession names the sessions of assumed roles in CloudTrail.
	roleSession = "eksbg"
	// loginTimeout bounds the first look for credentials, so that a machine without
	// any hears so within semantics 24's 30 seconds.
	loginTimeout = 20 * time.Second
)

// Options are what a caller decides about the calls of an account.
type Options struct {
	// OnRetry, if set, is told about every failed attempt that will be repeated: the
	// call ("eks:UpdateClusterVersion"), the number of the attempt that failed, why,
	// and how long the wait is. It is called from the calling goroutine and must not block.
	OnRetry func(call string, attempt int, err error, next time.Duration)
	// Budget bounds one call with all its attempts; 0 means 10 minutes.
	Budget time.Duration
	// Patience bounds how long a call may go without any HTTP answer (refused, reset,
	// no route, no such host); 0 means Budget. WithPatience shortens it for a context.
	Patience time.Duration
	// Attempt bounds one attempt on the wire; 0 means 30 seconds.
	Attempt time.Duration
	// Backoff says how long to wait between attempts; the zero value is the default.
	Backoff Backoff
	// Clock tells the time; nil means the real one.
	Clock clock.PassiveClock
}

// withDefaults fills in what was left zero.
func (o Options) withDefaults() Options {
	if o.Budget <= 0 {
		o.Budget = 10 * time.Minute
	}
	if o.Patience <= 0 || o.Patience > o.Budget {
		o.Patience = o.Budget
	}
	if o.Attempt <= 0 {
		o.Attempt = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Backoff = o.Backoff.withDefaults()
	return o
}

// Load makes the configuration of an account. Credentials are looked up once, so
// that a machine without any hears so here and not in the middle of a run; when
// they are missing or over, the error says what to type. Build one configuration
// per account and region and one client per service from it.
func Load(ctx context.Context, a Account, opt Options) (awssdk.Config, error) {
	opt = opt.withDefaults()
	plain := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) { d.Timeout, d.Control = dialTimeout, DropUnsent })
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(plain),
		config.WithRetryer(func() awssdk.Retryer { return newRetryer(opt) }),
		config.WithAPIOptions([]func(*middleware.Stack) error{retryMiddleware(opt)}),
		config.WithCredentialsCacheOptions(cacheOptions),
	}
	if a.Region != "" {
		load = append(load, config.WithRegion(a.Region))
	}
	if a.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(a.Profile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		var missing config.SharedConfigProfileNotExistError
		if errors.As(err, &missing) {
			return awssdk.Config{}, fmt.Errorf("AWS profile %q is not in the shared configuration: check the plan file, or run `aws configure --profile %s`: %w", a.Profile, a.Profile, err)
		}
		return awssdk.Config{}, fmt.Errorf("load the AWS configuration of %s: %w", a, err)
	}
	// Only now, since a custom CA bundle is applied to the SDK's own client type.
	cfg.HTTPClient = &detachingClient{inner: cfg.HTTPClient, timeout: opt.Attempt}
	if a.RoleARN != "" {
		cfg = assume(cfg, a.RoleARN)
	}
	first, cancel := context.WithTimeout(WithPatience(ctx, loginTimeout), loginTimeout)
	defer cancel()
	if _, err := cfg.Credentials.Retrieve(first); err != nil {
		return awssdk.Config{}, credentialsError(ctx, a, err)
	}
	return cfg, nil
}

func cacheOptions(o *awssdk.CredentialsCacheOptions) { o.ExpiryWindow = expiryWindow }

// assume returns the configuration with credentials of the role, taken with the
// ones that were there. One hour is the most that a chained role may have.
func assume(cfg awssdk.Config, role string) awssdk.Config {
	out := cfg.Copy()
	provider := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), role, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = roleSession
	})
	out.Credentials = &assumed{
		CredentialsProvider: awssdk.NewCredentialsCache(provider, cacheOptions),
		source:              cfg.Credentials,
	}
	return out
}

// assumed keeps the credentials that a role is assumed with: the role's own are
// renewed as long as those last.
type assumed struct {
	awssdk.CredentialsProvider
	source awssdk.CredentialsProvider
}

func credentialsError(ctx context.Context, a Account, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("look for AWS credentials: %w", context.Cause(ctx))
	}
	if IsExpired(err) {
		return fmt.Errorf("the AWS credentials of %s have expired; log in again with: %s: %w", a, LoginCommand(a), err)
	}
	if a.RoleARN != "" && ErrorCode(err) != "" {
		return fmt.Errorf("assume role %s: %s; check the role's trust policy and that the caller may sts:AssumeRole: %w", a.RoleARN, Message(err), err)
	}
	return fmt.Errorf("no AWS credentials found for %s; log in with: %s: %w", a, LoginCommand(a), err)
}
