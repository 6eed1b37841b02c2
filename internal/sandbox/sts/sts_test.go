package sts_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"go.uber.org/goleak"
	"sigs.k8s.io/aws-iam-authenticator/pkg/token"

	"github.com/eksbg/eksbg/internal/sandbox/sts"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const userARN = "arn:aws:iam::111122223333:user/sandbox"

func serve(t *testing.T, o sts.Options) (*sts.Service, *wiretest.Server, *awssts.Client) {
	t.Helper()
	svc := sts.New(o)
	srv := wiretest.Serve(t, svc)
	return svc, srv, awssts.NewFromConfig(srv.Config())
}

func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

func TestGetCallerIdentity(t *testing.T) {
	_, srv, client := serve(t, sts.Options{})
	out, err := client.GetCallerIdentity(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if aws.ToString(out.Arn) != userARN || aws.ToString(out.Account) != wire.Account || aws.ToString(out.UserId) != "AIDASANDBOX" {
		t.Errorf("got %s %s %s", aws.ToString(out.Arn), aws.ToString(out.Account), aws.ToString(out.UserId))
	}
	_, want := wiretest.SnapshotBody(t, "sts", "response_snapshot/GetCallerIdentity.response.snap")
	wiretest.SameXML(t, srv.Last().Response, want)
	_, sent := wiretest.SnapshotBody(t, "sts", "request_snapshot/GetCallerIdentity.request.snap")
	if got := string(srv.Last().Request); got != string(sent) {
		t.Errorf("the SDK sent %q, its snapshot is %q", got, sent)
	}
}

func TestAssumeRoleAnswersCredentialsThatWork(t *testing.T) {
	keys := wire.NewKeys()
	_, srv, client := serve(t, sts.Options{Keys: keys})
	out, err := client.AssumeRole(t.Context(), &awssts.AssumeRoleInput{
		RoleArn: aws.String("arn:aws:iam::111122223333:role/ops/deployer"), RoleSessionName: aws.String("upgrade"),
		DurationSeconds: aws.Int32(900),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, want := wiretest.SnapshotBody(t, "sts", "response_snapshot/AssumeRole.response.snap")
	wiretest.SameXML(t, srv.Last().Response, want)
	const arn = "arn:aws:sts::111122223333:assumed-role/deployer/upgrade"
	if aws.ToString(out.AssumedRoleUser.Arn) != arn {
		t.Errorf("assumed %s", aws.ToString(out.AssumedRoleUser.Arn))
	}
	if left := time.Until(*out.Credentials.Expiration); left < 14*time.Minute || left > 15*time.Minute {
		t.Errorf("expires in %s", left)
	}
	cfg := srv.Config()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(
		*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
	session := awssts.NewFromConfig(cfg)
	who, err := session.GetCallerIdentity(t.Context(), nil)
	if err != nil || aws.ToString(who.Arn) != arn {
		t.Fatalf("as the role: %v, %v", who, err)
	}
	keys.Expire(*out.Credentials.AccessKeyId, time.Now())
	if _, err = session.GetCallerIdentity(t.Context(), nil); code(err) != "ExpiredToken" {
		t.Errorf("after its end: %v", err)
	}
}

func TestRolesThatMayNotBeAssumed(t *testing.T) {
	_, _, client := serve(t, sts.Options{Roles: []string{"arn:aws:iam::111122223333:role/deployer"}})
	for name, tt := range map[string]struct {
		role, session string
		seconds       int32
		want          string
	}{
		"allowed":         {"arn:aws:iam::111122223333:role/deployer", "upgrade", 3600, ""},
		"another role":    {"arn:aws:iam::111122223333:role/admin", "upgrade", 3600, "AccessDenied"},
		"another account": {"arn:aws:iam::444455556666:role/deployer", "upgrade", 3600, "AccessDenied"},
		"no role":         {"arn:aws:iam::111122223333:user/deployer", "upgrade", 3600, "ValidationError"},
		"session name":    {"arn:aws:iam::111122223333:role/deployer", "a b", 3600, "ValidationError"},
		"too short":       {"arn:aws:iam::111122223333:role/deployer", "upgrade", 899, "ValidationError"},
		"too long":        {"arn:aws:iam::111122223333:role/deployer", "upgrade", 43201, "ValidationError"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.AssumeRole(t.Context(), &awssts.AssumeRoleInput{
				RoleArn: &tt.role, RoleSessionName: &tt.session, DurationSeconds: &tt.seconds,
			})
			if code(err) != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWhoIsNotKnownIsTold(t *testing.T) {
	_, srv, _ := serve(t, sts.Options{})
	cfg := srv.Config()
	cfg.Credentials = credentials.NewStaticCredentialsProvider("AKIDNOBODY", "x", "")
	_, err := awssts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), nil)
	if code(err) != "InvalidClientTokenId" || srv.Last().Status != http.StatusForbidden {
		t.Errorf("got %v, status %d", err, srv.Last().Status)
	}
}

func TestFaultsAreInTheFormOfTheService(t *testing.T) {
	_, srv, client := serve(t, sts.Options{})
	if err := srv.Faults.Add(wire.Fault{Call: "sts:GetCallerIdentity", Error: "ExpiredToken"}); err != nil {
		t.Fatal(err)
	}
	_, err := client.GetCallerIdentity(t.Context(), nil)
	if code(err) != "ExpiredToken" || srv.Last().Status != http.StatusForbidden {
		t.Errorf("got %v, status %d", err, srv.Last().Status)
	}
}

// eksToken is a token made as the AWS CLI and eksctl make it.
func eksToken(t *testing.T, cfg aws.Config, cluster string) string {
	t.Helper()
	signed, err := awssts.NewPresignClient(awssts.NewFromConfig(cfg)).PresignGetCallerIdentity(t.Context(), nil,
		func(o *awssts.PresignOptions) {
			o.ClientOptions = append(o.ClientOptions, func(o *awssts.Options) {
				o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("x-k8s-aws-id", cluster), smithyhttp.SetHeaderValue("X-Amz-Expires", "60"))
			})
		})
	if err != nil {
		t.Fatal(err)
	}
	return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(signed.URL))
}

func clusters() []string { return []string{"blue", "green"} }

func TestTokensOfTheSDKAndTheAuthenticatorAreVerified(t *testing.T) {
	svc, srv, client := serve(t, sts.Options{Clusters: clusters})
	arn, cluster, err := svc.Verify(eksToken(t, srv.Config(), "green"), time.Now())
	if err != nil || arn != userARN || cluster != "green" {
		t.Errorf("token of the SDK: %q %q %v", arn, cluster, err)
	}
	gen, err := token.NewGenerator(false, false)
	if err != nil {
		t.Fatal(err)
	}
	made, err := gen.GetWithSTS("blue", client)
	if err != nil {
		t.Fatal(err)
	}
	arn, cluster, err = svc.Verify(made.Token, time.Now())
	if err != nil || arn != userARN || cluster != "blue" {
		t.Errorf("token of aws-iam-authenticator: %q %q %v", arn, cluster, err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	keys := wire.NewKeys()
	svc, srv, _ := serve(t, sts.Options{Keys: keys, Clusters: clusters})
	good := eksToken(t, srv.Config(), "blue")
	rewrite := func(old, now string) string {
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(good, "k8s-aws-v1."))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), old) {
			t.Fatalf("%s has no %q", raw, old)
		}
		return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(raw), old, now, 1)))
	}
	stranger := srv.Config()
	stranger.Credentials = credentials.NewStaticCredentialsProvider(wire.AccessKey, "another secret", "")
	nobody := srv.Config()
	nobody.Credentials = credentials.NewStaticCredentialsProvider("AKIDNOBODY", "x", "")
	now := time.Now()
	for name, tt := range map[string]struct {
		token string
		at    time.Time
		want  string
	}{
		"good":                {good, now, ""},
		"good, 14 minutes on": {good, now.Add(14 * time.Minute), ""},
		"15 minutes on":       {good, now.Add(15 * time.Minute), "signed 15m"},
		"no prefix":           {strings.TrimPrefix(good, "k8s-aws-v1."), now, "does not begin with"},
		"not base64":          {"k8s-aws-v1.!!", now, "decode it"},
		"empty":               {"", now, "does not begin with"},
		"another action":      {rewrite("Action=GetCallerIdentity", "Action=AssumeRole"), now, "not GetCallerIdentity"},
		"more parameters":     {rewrite("Action=", "RoleArn=x&Action="), now, "does not belong there"},
		"another path":        {rewrite("/?Action", "/path?Action"), now, "presigned for"},
		"long expiry":         {rewrite("X-Amz-Expires=60", "X-Amz-Expires=901"), now, "X-Amz-Expires"},
		"no signed cluster":   {rewrite("%3Bx-k8s-aws-id", ""), now, "not signed over the cluster name"},
		"edited time":         {rewrite("X-Amz-Expires=60", "X-Amz-Expires=61"), now, "does not match"},
		"unknown cluster":     {eksToken(t, srv.Config(), "red"), now, "for any cluster"},
		"wrong secret":        {eksToken(t, stranger, "blue"), now, "for any cluster"},
		"unknown key":         {eksToken(t, nobody, "blue"), now, "token included in the request is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := svc.Verify(tt.token, tt.at)
			if tt.want == "" && err == nil {
				return
			}
			if err == nil || tt.want == "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	other := sts.New(sts.Options{Keys: keys, Clusters: clusters, Hosts: []string{"sts.test:443"}})
	if _, _, err := other.Verify(good, now); err == nil || !strings.Contains(err.Error(), "not for this STS") {
		t.Errorf("for another host: %v", err)
	}
	keys.Expire(wire.AccessKey, now)
	if _, _, err := svc.Verify(good, now); !errors.Is(err, wire.ErrExpired) {
		t.Errorf("of an expired key: %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	svc := sts.New(sts.Options{Clusters: clusters})
	f.Add("k8s-aws-v1.aHR0cHM6Ly9zdHMvP0FjdGlvbj1HZXRDYWxsZXJJZGVudGl0eQ")
	f.Fuzz(func(t *testing.T, token string) {
		if _, _, err := svc.Verify(token, time.Now()); err == nil {
			t.Fatalf("accepted %q", token)
		}
	})
}
