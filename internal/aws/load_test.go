package aws_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/eksbg/eksbg/internal/aws"
)

func TestLoadSaysWhatIsMissing(t *testing.T) {
	t.Run("no credentials", func(t *testing.T) {
		keys(t)
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		_, err := aws.Load(context.Background(), aws.Account{Region: "eu-west-1"}, aws.Options{})
		if err == nil || !strings.Contains(err.Error(), "no AWS credentials found") || !strings.Contains(err.Error(), "aws sso login") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("no such profile", func(t *testing.T) {
		keys(t)
		_, err := aws.Load(context.Background(), aws.Account{Region: "eu-west-1", Profile: "shop-green"}, aws.Options{})
		if err == nil || !strings.Contains(err.Error(), `"shop-green"`) || !strings.Contains(err.Error(), "aws configure --profile shop-green") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("SSO session is over", func(t *testing.T) {
		keys(t)
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		file := filepath.Join(t.TempDir(), "config")
		profile := "[profile shop]\nsso_start_url=https://example.awsapps.com/start\nsso_region=eu-west-1\nsso_account_id=111122223333\nsso_role_name=upgrader\nregion=eu-west-1\n"
		if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_CONFIG_FILE", file)
		t.Setenv("HOME", t.TempDir())
		_, err := aws.Load(context.Background(), aws.Account{Region: "eu-west-1", Profile: "shop"}, aws.Options{})
		if err == nil || !aws.IsExpired(err) || !strings.Contains(err.Error(), "aws sso login --profile shop") {
			t.Fatalf("got %v", err)
		}
	})
}

func TestAssumesARole(t *testing.T) {
	keys(t)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	var denied atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		w.Header().Set("Content-Type", "text/xml")
		switch {
		case denied.Load():
			w.WriteHeader(403)
			_, _ = fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized to perform: sts:AssumeRole</Message></Error></ErrorResponse>`)
		case r.Form.Get("Action") == "AssumeRole":
			_, _ = fmt.Fprintf(w, `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`, end.Format(time.RFC3339))
		default:
			if !strings.Contains(r.Header.Get("Authorization"), "ASIAROLE") {
				t.Errorf("signed with %s", r.Header.Get("Authorization"))
			}
			_, _ = fmt.Fprint(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:sts::111122223333:assumed-role/upgrader/eksbg</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`)
		}
	}))
	defer srv.Close()
	t.Setenv("AWS_ENDPOINT_URL_STS", srv.URL)
	account := aws.Account{Region: "eu-west-1", RoleARN: "arn:aws:iam::111122223333:role/upgrader"}
	cfg, err := aws.Load(context.Background(), account, aws.Options{Backoff: quick})
	if err != nil {
		t.Fatal(err)
	}
	arn, err := aws.WhoAmI(context.Background(), sts.NewFromConfig(cfg))
	if err != nil || arn != "arn:aws:sts::111122223333:assumed-role/upgrader/eksbg" {
		t.Fatalf("got %q, %v", arn, err)
	}
	// The keys that the role is assumed with do not end, so neither does the role.
	if at, err := aws.Expiry(context.Background(), cfg); err != nil || !at.IsZero() {
		t.Errorf("expiry %v, %v", at, err)
	}
	denied.Store(true)
	_, err = aws.Load(context.Background(), account, aws.Options{Backoff: quick})
	if err == nil || !strings.Contains(err.Error(), "assume role "+account.RoleARN) || !strings.Contains(err.Error(), "trust policy") {
		t.Errorf("got %v", err)
	}
}

func TestExpiry(t *testing.T) {
	end := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		c    awssdk.Credentials
		want time.Time
	}{
		"keys":     {awssdk.Credentials{AccessKeyID: "A", SecretAccessKey: "s"}, time.Time{}},
		"session":  {awssdk.Credentials{AccessKeyID: "A", SecretAccessKey: "s", CanExpire: true, Expires: end, Source: "SSOProvider"}, end},
		"instance": {awssdk.Credentials{AccessKeyID: "A", SecretAccessKey: "s", CanExpire: true, Expires: end, Source: "EC2RoleProvider"}, time.Time{}},
		"pod":      {awssdk.Credentials{AccessKeyID: "A", SecretAccessKey: "s", CanExpire: true, Expires: end, Source: "WebIdentityCredentials"}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := awssdk.Config{Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) { return tc.c, nil })}
			got, err := aws.Expiry(context.Background(), cfg)
			if err != nil || !got.Equal(tc.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
