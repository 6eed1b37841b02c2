package aws

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"unicode"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
)

// expiredCodes are the error codes of credentials whose time is over. REST-JSON
// services (EKS) say ExpiredTokenException, query and XML ones (STS, ELBv2,
// Route 53) ExpiredToken; RequestExpired is a signature that came too late.
var expiredCodes = map[string]bool{
	"ExpiredToken":          true,
	"ExpiredTokenException": true,
	"RequestExpired":        true,
	"TokenRefreshRequired":  true,
}

// deniedCodes are the error codes of a caller who may not do what it asked for.
var deniedCodes = map[string]bool{
	"AccessDenied":                true,
	"AccessDeniedException":       true,
	"UnauthorizedOperation":       true,
	"NotAuthorized":               true,
	"UnauthorizedException":       true,
	"AuthorizationError":          true,
	"UnrecognizedClientException": true,
	"InvalidClientTokenId":        true,
	"SignatureDoesNotMatch":       true,
	"InvalidSignatureException":   true,
	"MissingAuthenticationToken":  true,
	"AuthFailure":                 true, // EC2
}

// notFoundCodes are the error codes of a thing that is not there, in the services
// that eksbg calls.
var notFoundCodes = map[string]bool{
	"ResourceNotFoundException": true,
	"NotFoundException":         true,
	"NoSuchHostedZone":          true,
	"NoSuchChange":              true,
	"HostedZoneNotFound":        true,
	"LoadBalancerNotFound":      true,
	"ListenerNotFound":          true,
	"RuleNotFound":              true,
	"TargetGroupNotFound":       true,
	"NoSuchEntity":              true,
}

// IsExpired tells whether the credentials behind a call are over, so that a person
// has to log in: both spellings of an expired token, a signature that came too
// late, an SSO session or a console login that has ended.
func IsExpired(err error) bool {
	if err == nil {
		return false
	}
	var sso *ssocreds.InvalidTokenError
	if errors.As(err, &sso) {
		return true
	}
	var api smithy.APIError
	if errors.As(err, &api) && expiredCodes[api.ErrorCode()] {
		return true
	}
	// The providers behind a profile call sso, sso-oidc and signin themselves; what
	// these say about an ended session has codes of its own.
	var op *smithy.OperationError
	if errors.As(err, &op) && api != nil {
		switch op.ServiceID {
		case "SSO":
			return api.ErrorCode() == "UnauthorizedException"
		case "SSO OIDC":
			return api.ErrorCode() == "InvalidGrantException"
		}
	}
	return strings.Contains(err.Error(), "please reauthenticate")
}

// IsDenied tells whether the caller is known but may not do this, or is not known
// at all; expired credentials are not denied.
func IsDenied(err error) bool {
	if IsExpired(err) {
		return false
	}
	return deniedCodes[ErrorCode(err)]
}

// IsNotFound tells whether the API says that the thing asked for does not exist.
func IsNotFound(err error) bool { return notFoundCodes[ErrorCode(err)] }

// IsUnavailable tells whether a call was given up because the endpoint did not
// answer, or kept answering that it cannot (throttled, 5xx): nothing is wrong with
// the request, and later it may work.
func IsUnavailable(err error) bool {
	if err == nil || IsExpired(err) || errors.Is(err, context.Canceled) {
		return false
	}
	var gave *GaveUpError
	if errors.As(err, &gave) {
		return true
	}
	var status interface{ HTTPStatusCode() int }
	if errors.As(err, &status) {
		switch code := status.HTTPStatusCode(); {
		case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
			return true
		case code != 0:
			return false
		}
	}
	var netErr net.Error
	return errors.As(err, &netErr)
}

// IsRejected tells whether the API itself answered that it will not do this, so
// that nothing has changed: an error of the request (4xx) that is neither about
// the caller's credentials nor about the moment. Every other error leaves open
// whether the change was made.
func IsRejected(err error) bool {
	if err == nil || IsExpired(err) || IsUnavailable(err) || IsRetryable(err) {
		return false
	}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		code := resp.HTTPStatusCode()
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorFault() != smithy.FaultServer
}

// ErrorCode is the API's own code of the error ("ResourceInUseException"), or ""
// when no API answered.
func ErrorCode(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// Message is what the API said, without the operation and request id that the SDK
// puts around it, control characters stripped. Route 53 keeps the text of an
// InvalidChangeBatch in its list of messages. Errors of no API are given as they are.
func Message(err error) string {
	if err == nil {
		return ""
	}
	var batch *r53types.InvalidChangeBatch
	if errors.As(err, &batch) && len(batch.Messages) > 0 {
		return clean(strings.Join(batch.Messages, "; "))
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		if m := clean(api.ErrorMessage()); m != "" {
			return m
		}
		return api.ErrorCode()
	}
	return clean(err.Error())
}

// clean strips control and format characters, as state.Clean does; this package
// stands on nothing of eksbg.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, s))
}
