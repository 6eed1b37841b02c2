package sts

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

type assumeRole struct {
	RoleArn, RoleSessionName string
	DurationSeconds          *int32
}

type assumed struct {
	Credentials     credentials
	AssumedRoleUser assumedUser
}

type credentials struct {
	AccessKeyId, SecretAccessKey, SessionToken string
	Expiration                                 time.Time
}

type assumedUser struct{ Arn, AssumedRoleId string }

var (
	roleARN     = regexp.MustCompile(`^arn:aws:iam::(\d{12}):role/([\w+=,.@/-]+)$`)
	sessionName = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
)

// assume makes new credentials for a role. Durations as
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html has them:
// 15 minutes to 12 hours, one hour when not said, at most one hour when chained.
func (s *Service) assume(caller wire.Key, in assumeRole) (*assumed, *wire.APIError) {
	role := roleARN.FindStringSubmatch(in.RoleArn)
	switch {
	case role == nil:
		return nil, wire.Errorf("ValidationError", "%s is invalid", in.RoleArn)
	case !sessionName.MatchString(in.RoleSessionName):
		return nil, wire.Errorf("ValidationError", "Value '%s' at 'roleSessionName' failed to satisfy constraint: "+
			`Member must satisfy regular expression pattern: [\w+=,.@-]*`, in.RoleSessionName)
	}
	if role[1] != s.opts.Account || s.opts.Roles != nil && !slices.Contains(s.opts.Roles, in.RoleArn) {
		return nil, &wire.APIError{Status: http.StatusForbidden, Code: "AccessDenied", Message: fmt.Sprintf(
			"User: %s is not authorized to perform: sts:AssumeRole on resource: %s", caller.ARN, in.RoleArn)}
	}
	seconds := int32(3600)
	if in.DurationSeconds != nil {
		seconds = *in.DurationSeconds
	}
	if seconds < 900 || seconds > 43200 {
		return nil, wire.Errorf("ValidationError", "The requested DurationSeconds %d is not between 900 and 43200", seconds)
	}
	if caller.SessionToken != "" && seconds > 3600 {
		return nil, wire.Errorf("ValidationError",
			"The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining")
	}
	name := role[2][strings.LastIndex(role[2], "/")+1:]
	id := "AROA" + strings.ToUpper(random(12))
	key := wire.Key{
		AccessKey: "ASIA" + strings.ToUpper(random(12)), Secret: random(30), SessionToken: random(90),
		ARN:     fmt.Sprintf("arn:aws:sts::%s:assumed-role/%s/%s", s.opts.Account, name, in.RoleSessionName),
		UserID:  id + ":" + in.RoleSessionName,
		Expires: s.opts.Now().Add(time.Duration(seconds) * time.Second).Truncate(time.Second),
	}
	s.opts.Keys.Add(key)
	return &assumed{
		Credentials: credentials{
			AccessKeyId: key.AccessKey, SecretAccessKey: key.Secret,
			SessionToken: key.SessionToken, Expiration: key.Expires,
		},
		AssumedRoleUser: assumedUser{Arn: key.ARN, AssumedRoleId: key.UserID},
	}, nil
}

// random is n random bytes as letters and digits.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return strings.NewReplacer("-", "x", "_", "y").Replace(base64.RawURLEncoding.EncodeToString(b))
}
