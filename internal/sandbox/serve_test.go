package sandbox_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

func restConfig(t *testing.T, c *ekstypes.Cluster, token string) *rest.Config {
	t.Helper()
	ca, err := base64.StdEncoding.DecodeString(*c.CertificateAuthority.Data)
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: *c.Endpoint, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func TestServeSaysReadyAndEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	var hints strings.Builder
	dir := filepath.Join(t.TempDir(), "a", "world")
	done := make(chan error, 1)
	go func() {
		done <- sandbox.Serve(ctx, w, sandbox.Options{Scenario: tiny(t), Dir: dir, Speed: fast, Hints: &hints})
		_ = w.Close()
	}()
	lines := bufio.NewScanner(r)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the first line is %q, %v", lines.Text(), lines.Err())
	}
	if !strings.Contains(hints.String(), filepath.Join(dir, "env")) {
		t.Errorf("the hints do not name the env file:\n%s", hints.String())
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if lines.Scan() {
		t.Errorf("it said more: %q", lines.Text())
	}
}

func TestServeNamesWhatFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := sandbox.Serve(t.Context(), io.Discard, sandbox.Options{Scenario: tiny(t), Dir: file, Speed: fast})
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
	if err := sandbox.Serve(t.Context(), io.Discard, sandbox.Options{Scenario: tiny(t), Dir: t.TempDir(), Speed: -1}); err == nil {
		t.Error("a negative speed was accepted")
	}
}

// A shell that sources the env file has what Env says, whatever it had before.
func TestEnvFile(t *testing.T) {
	world := serve(t, tiny(t), fast)
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-c", `. "$1" && env`, "sh", world.EnvPath())
	sh.Env = append(os.Environ(), "AWS_PROFILE=prod", "AWS_SESSION_TOKEN=x", "AWS_ENDPOINT_URL=http://elsewhere", "NO_PROXY=internal")
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(string(out), "\n")
	for _, kv := range world.Env() {
		k, v, _ := strings.Cut(kv, "=")
		switch {
		case strings.EqualFold(k, "NO_PROXY"):
		case v == "" && k != "AWS_PAGER":
			if slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, k+"=") }) {
				t.Errorf("%s is still set", k)
			}
		case !slices.Contains(got, kv):
			t.Errorf("the shell lacks %s", kv)
		}
	}
	if !slices.Contains(got, "NO_PROXY=127.0.0.1,localhost,internal") {
		t.Error("NO_PROXY is not added to")
	}
}

// code is the error code that an API answered with.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func TestFaultsStrike(t *testing.T) {
	world := serve(t, tiny(t, `faults:
  - {call: "eks:DescribeCluster", nth: 2, error: ThrottlingException, status: 429, message: "Rate exceeded"}
  - {call: "eks:UpdateClusterVersion", nth: 1, reset: after}
  - {call: "k8s:list pods", nth: 1, error: TooManyRequests, status: 429}
  - {call: "k8s:list pods", nth: 2, reset: before}`), fast)
	u := userOf(t, world, 1)
	ctx := t.Context()
	name := awssdk.String("tiny-green")
	describe := func() error {
		_, err := u.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: name})
		return err
	}
	for i, want := range []string{"", "ThrottlingException", ""} {
		if err := describe(); code(err) != want || (err == nil) != (want == "") {
			t.Errorf("call %d answered %v, want %q", i+1, err, want)
		}
	}
	token := awssdk.String("0f3f5a3e-6f39-4d2e-9c3c-0d9e4f0b7a11")
	in := &eks.UpdateClusterVersionInput{Name: name, Version: awssdk.String("1.32"), ClientRequestToken: token}
	if _, err := u.eks.UpdateClusterVersion(ctx, in); err == nil {
		t.Error("the answer was not withheld")
	}
	again := must[*eks.UpdateClusterVersionOutput](t)(u.eks.UpdateClusterVersion(ctx, in))
	list := must[*eks.ListUpdatesOutput](t)(u.eks.ListUpdates(ctx, &eks.ListUpdatesInput{Name: name}))
	if len(list.UpdateIds) != 1 || list.UpdateIds[0] != *again.Update.Id {
		t.Errorf("the same token made updates %v", list.UpdateIds)
	}
	green := u.kube(sandbox.Green)
	// client-go takes the 429 and the cut connection in its stride.
	if _, err := green.CoreV1().Pods("web").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("list pods: %v", err)
	}
	struck := map[string]int{}
	for _, e := range requests(t, world) {
		if e.Fault != "" {
			struck[e.Call]++
		}
	}
	if struck["eks:DescribeCluster"] != 1 || struck["eks:UpdateClusterVersion"] != 1 || struck["k8s:list pods"] != 2 {
		t.Errorf("the log has faults %v", struck)
	}
}

func TestFaultsCanBeAdded(t *testing.T) {
	world := serve(t, tiny(t), fast)
	u := userOf(t, world, 1)
	if err := world.Faults().Add(wire.Fault{Call: "sts:*", Error: "ExpiredToken", Status: 403}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.sts.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}); code(err) != "ExpiredToken" {
		t.Errorf("got %v", err)
	}
	if _, err := u.sts.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}); err != nil {
		t.Errorf("the fault struck twice: %v", err)
	}
}

// Credentials that ran out are refused by every service, in its own spelling, until
// there are new ones.
func TestExpiredCredentials(t *testing.T) {
	world := serve(t, tiny(t, "credentialsLast: 1s"), 1)
	u := userOf(t, world, 1)
	eventually(t, "EKS says that they ran out", func() bool {
		_, err := u.eks.ListClusters(t.Context(), nil)
		return code(err) == "ExpiredTokenException"
	})
	if _, err := u.r53.ListHostedZones(t.Context(), nil); code(err) != "ExpiredToken" {
		t.Errorf("Route 53 answered %v", err)
	}
	if _, err := u.elb.DescribeLoadBalancers(t.Context(), nil); code(err) != "ExpiredToken" {
		t.Errorf("ELBv2 answered %v", err)
	}
	if _, err := u.sts.GetCallerIdentity(t.Context(), nil); code(err) != "ExpiredToken" {
		t.Errorf("STS answered %v", err)
	}
	world.Keys().Expire(wire.AccessKey, time.Time{})
	if _, err := u.eks.ListClusters(t.Context(), nil); err != nil {
		t.Errorf("after a new login: %v", err)
	}
}

// In flaky every service disturbs its callers, and a patient one gets through.
func TestFlakyLetsThePatientThrough(t *testing.T) {
	world := serve(t, load(t, "flaky"), fast)
	u := userOf(t, world, 20)
	if update := u.hop("news-green", "1.32"); update.Status != ekstypes.UpdateStatusSuccessful {
		t.Errorf("the update ended as %s", update.Status)
	}
	struck := map[string]bool{}
	for _, e := range requests(t, world) {
		service, _, _ := strings.Cut(e.Call, ":")
		struck[service] = struck[service] || e.Fault != ""
	}
	if !struck["eks"] {
		t.Errorf("nothing struck EKS: %v", struck)
	}
}

func TestStuckUpdateSaysWhy(t *testing.T) {
	world := serve(t, load(t, "stuck"), fast)
	u := userOf(t, world, 3)
	for range 2 {
		update := u.hop("ledger-green", "1.32")
		if update.Status != ekstypes.UpdateStatusFailed || len(update.Errors) != 1 {
			t.Fatalf("the update ended as %s with %v", update.Status, update.Errors)
		}
		if e := update.Errors[0]; e.ErrorCode != ekstypes.ErrorCodeInsufficientFreeAddresses || len(e.ResourceIds) != 2 || *e.ErrorMessage == "" {
			t.Errorf("it says %+v", e)
		}
	}
	if got := world.Versions(); got[sandbox.Green] != "1.31" {
		t.Errorf("versions are %v", got)
	}
	if update := u.hop("ledger-blue", "1.32"); update.Status != ekstypes.UpdateStatusSuccessful {
		t.Errorf("blue's update ended as %s", update.Status)
	}
}

// requests reads the log of what was served.
func requests(t *testing.T, world *sandbox.Sandbox) []wire.Entry {
	t.Helper()
	f, err := os.Open(world.RequestsPath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var entries []wire.Entry
	for d := json.NewDecoder(f); ; {
		var e wire.Entry
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return entries
		} else if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
}
