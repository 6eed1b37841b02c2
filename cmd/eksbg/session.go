package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/cutover"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

// session holds the clients of one command: made once, when first needed.
type session struct {
	streams
	planPath string
	file     *planfile.File

	configs map[aws.Account]awssdk.Config
	eks     map[state.Side]*eks.Client
	traffic []cutover.Traffic
	prober  cutover.Prober

	// looks are what the clusters are listed with by whoever may go by what another one
	// has just seen.
	looks *plan.Looks

	mu       sync.Mutex
	clusters map[state.Side]*cluster.Client
	// caller is who calls, once asked.
	caller *string
}

func newSession(s streams, planPath string, f *planfile.File) (*session, error) {
	out := &session{streams: s, planPath: planPath, file: f,
		configs: map[aws.Account]awssdk.Config{}, eks: map[state.Side]*eks.Client{}, clusters: map[state.Side]*cluster.Client{}}
	out.looks = plan.NewLooks(s.clock, map[state.Side]preflight.Inventory{state.Blue: out.inventory(state.Blue), state.Green: out.inventory(state.Green)})
	return out, nil
}

func (s *session) account(side state.Side) aws.Account {
	c := s.file.Clusters.Blue
	if side == state.Green {
		c = s.file.Clusters.Green
	}
	return aws.Account{Region: s.file.Region, Profile: c.Profile, RoleARN: c.RoleARN}
}

// trafficAccount is the account of the zones and load balancers: that of the
// clusters where both say the same, and the environment's own otherwise.
func (s *session) trafficAccount() aws.Account {
	if a := s.account(state.Blue); a == s.account(state.Green) {
		return a
	}
	return aws.Account{Region: s.file.Region}
}

func (s *session) retryOptions() aws.Options {
	return aws.Options{OnRetry: func(call string, attempt int, err error, next time.Duration) {
		if attempt > 2 { // the first ones are everyday
			s.logged(fmt.Sprintf("%s: %s; attempt %d in %s", call, shortly(err), attempt+1, next.Round(100*time.Millisecond)))
		}
	}}
}

// shortly says why an attempt failed without the address that was tried.
func shortly(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return aws.Message(err)
}

// connect makes the clients of every account in use, and finds the entrances.
func (s *session) connect(ctx context.Context) error {
	if s.traffic != nil {
		return nil
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	cfg := s.configs[s.trafficAccount()]
	s.prober = cutover.NewProber(cutover.ProberOptions{Clock: s.clock})
	var err error
	s.traffic, err = cutover.Open(ctx, s.file.Traffic, route53.NewFromConfig(cfg), elb.NewFromConfig(cfg), s.clock)
	return err
}

// load reads the configuration of every account in use and makes the clients of EKS.
func (s *session) load(ctx context.Context) error {
	if len(s.eks) > 0 {
		return nil
	}
	for _, a := range []aws.Account{s.account(state.Blue), s.account(state.Green), s.trafficAccount()} {
		if _, ok := s.configs[a]; ok {
			continue
		}
		cfg, err := aws.Load(ctx, a, s.retryOptions())
		if err != nil {
			return credentialStop(a, err)
		}
		s.configs[a] = cfg
	}
	for _, side := range state.Sides {
		s.eks[side] = eks.NewFromConfig(s.configs[s.account(side)])
	}
	return nil
}

func credentialStop(a aws.Account, err error) error {
	if aws.IsExpired(err) {
		return &state.Stop{Code: state.ExitResumable, Why: "the AWS credentials have expired (" + a.String() + ")", Cause: err,
			Cure: aws.LoginCommand(a) + "\nthen run the same command again"}
	}
	return fmt.Errorf("find AWS credentials (%s): %w", a, err)
}

// open is the client of one side's cluster.
func (s *session) open(ctx context.Context, side state.Side) (*cluster.Client, error) {
	s.mu.Lock()
	c := s.clusters[side]
	s.mu.Unlock()
	if c != nil {
		return c, nil
	}
	name := s.file.Clusters.Blue.Name
	if side == state.Green {
		name = s.file.Clusters.Green.Name
	}
	c, err := cluster.Open(ctx, cluster.Options{EKS: s.eks[side], AWS: s.configs[s.account(side)], Name: name,
		Clock: s.clock, Retry: s.retryOptions()})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.clusters[side] = c
	s.mu.Unlock()
	return c, nil
}

// inventory lists one side's cluster.
func (s *session) inventory(side state.Side) preflight.Inventory {
	return func(ctx context.Context) (*cluster.Inventory, error) {
		c, err := s.open(ctx, side)
		if err != nil {
			return nil, err
		}
		return c.Inventory(ctx)
	}
}

// described is what EKS says of one side's cluster.
func (s *session) described(side state.Side) preflight.Inventory {
	return func(ctx context.Context) (*cluster.Inventory, error) {
		c, err := s.open(ctx, side)
		if err != nil {
			return nil, err
		}
		return c.Described(ctx)
	}
}

func (s *session) sources() plan.Sources {
	return plan.Sources{
		EKS:               map[state.Side]upgrade.API{state.Blue: s.eks[state.Blue], state.Green: s.eks[state.Green]},
		Inventories:       map[state.Side]preflight.Inventory{state.Blue: s.looks.Anew(state.Blue), state.Green: s.looks.Anew(state.Green)},
		Described:         map[state.Side]preflight.Inventory{state.Blue: s.described(state.Blue), state.Green: s.described(state.Green)},
		Looks:             s.looks,
		Traffic:           s.traffic,
		Clock:             s.clock,
		CredentialsExpire: s.credentialsExpire,
		Room:              s.room,
	}
}

// room reads what Fargate has left for a side's cluster, in its account.
func (s *session) room(ctx context.Context, side state.Side, used int) (fargate.Room, error) {
	name := s.file.Clusters.Blue.Name
	if side == state.Green {
		name = s.file.Clusters.Green.Name
	}
	cfg := s.configs[s.account(side)]
	subnets := fargate.SubnetsFunc(ec2.NewFromConfig(cfg).DescribeSubnets)
	return fargate.Read(ctx, s.eks[side], subnets, servicequotas.NewFromConfig(cfg), name, used)
}

// credentialsExpire is when the first of the credentials in use ends.
func (s *session) credentialsExpire(ctx context.Context) (time.Time, error) {
	var first time.Time
	for a, cfg := range s.configs {
		at, err := aws.Expiry(ctx, cfg)
		if err != nil {
			return first, credentialStop(a, err)
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, nil
}

// plan reads the pair and works out the plan. Nothing has been changed yet, so an
// endpoint that is dead, or answers nothing but errors, is an error soon.
func (s *session) plan(ctx context.Context, active state.Side, fileSum, lineage string) (*state.Plan, error) {
	switch active {
	case "", state.Blue, state.Green:
	default:
		return nil, fmt.Errorf("--active %s: blue or green", active)
	}
	ctx = run.Reading(ctx)
	if err := s.connect(ctx); err != nil {
		return nil, s.explain(ctx, err)
	}
	w, roles, err := plan.Observe(ctx, s.file, s.sources(), active)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	id := plan.Identity{Tool: version, File: s.planPath, FileSum: fileSum, Lineage: lineage, Active: active}
	if id.Run, err = state.NewID(w.At, rand.Reader); err != nil {
		return nil, err
	}
	if id.Lineage == "" {
		if id.Lineage, err = state.NewID(w.At, rand.Reader); err != nil {
			return nil, err
		}
	}
	return plan.Make(s.file, w, roles, id), nil
}

// explain gives errors of reading the pair the exit code that users are promised.
func (s *session) explain(ctx context.Context, err error) error {
	var cause *state.Stop
	switch {
	case errors.As(context.Cause(ctx), &cause): // the lock was lost
		return cause
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &state.Stop{Code: state.ExitResumable, Why: "the time that --timeout gives is over; this process has changed nothing"}
	case ctx.Err() != nil:
		return &state.Stop{Code: state.ExitInterrupted, Why: "interrupted; this process has changed nothing"}
	case aws.IsExpired(err):
		return &state.Stop{Code: state.ExitResumable, Why: "the AWS credentials have expired", Cause: err,
			Cure: s.login(state.Both) + "\nthen run the same command again"}
	case !errors.As(err, &cause) && notAllowed(err):
		return &state.Stop{Code: state.ExitBlocked, Why: "a permission is missing", Cause: err, Cure: cureNotAllowed}
	}
	return err
}

// cureNotAllowed is for a refusal that itself says what is missing.
const cureNotAllowed = "allow the caller what it says (docs/permissions.md), then run the same command again"

// notAllowed tells whether AWS or an API server knows the caller and refuses; credentials
// that it does not take are no missing permission.
func notAllowed(err error) bool {
	switch aws.ErrorCode(err) {
	case "UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken", "AuthFailure":
		return false
	}
	return aws.IsDenied(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// verify holds an open run against the clusters that the plan file names now. Traffic
// that is on its way does not wait for an EKS that is away: unverified is true then,
// and the present stage is held and judged, but no further one begins.
func (s *session) verify(ctx context.Context, j *state.Journal) (unverified bool, err error) {
	changed, moving := len(state.Changed(j.Records(""))) > 0, run.Moving(j.Records(""))
	if !changed || moving {
		ctx = run.Reading(ctx)
	}
	if err := s.connect(ctx); err != nil {
		return false, s.explain(ctx, err)
	}
	now := &state.Plan{Name: s.file.Name, Region: s.file.Region, Variant: state.Variant(s.file.Variant), Clusters: map[state.Side]state.ClusterView{}}
	for _, side := range state.Sides {
		name := s.file.Clusters.Blue.Name
		if side == state.Green {
			name = s.file.Clusters.Green.Name
		}
		out, err := s.eks[side].DescribeCluster(ctx, &eks.DescribeClusterInput{Name: awssdk.String(name)})
		if moving && aws.IsUnavailable(err) {
			s.say("EKS does not answer. The present stage is held and judged without it; no further one begins.")
			return true, nil
		}
		if err != nil && changed && aws.IsUnavailable(err) {
			return false, &state.Stop{Code: state.ExitResumable, Why: "EKS did not answer for minutes", Cause: err,
				Cure: "check the network and the endpoint, then run the same command again"}
		}
		if err != nil {
			return false, s.explain(ctx, fmt.Errorf("look up cluster %s: %w", name, err))
		}
		now.Clusters[side] = state.ClusterView{Name: name, ARN: awssdk.ToString(out.Cluster.Arn), CreatedAt: awssdk.ToTime(out.Cluster.CreatedAt).UTC()}
	}
	return false, j.Matches(now)
}

// builder makes the steps of the run of a journal.
func (s *session) builder(j *state.Journal, a *applied) *plan.Builder {
	b := &plan.Builder{
		File: s.file, FileSum: a.sum, Plan: j.Plan(), History: j, Sources: s.sources(), Prober: s.prober,
		OnInterrupt: a.back, Approve: (&control{applied: a}).Approve, Stderr: func(line string) { fmt.Fprintln(s.err, line) },
		Open: func(ctx context.Context, side state.Side) (plan.Cluster, error) {
			c, err := s.open(ctx, side)
			if err != nil { // not a nil *Client in an interface
				return nil, err
			}
			return c, nil
		},
		Servers: map[state.Side]upgrade.ServerVersioner{},
	}
	for _, side := range state.Sides {
		b.Servers[side] = server{s, side}
	}
	return b
}

// server asks one side's API server for its version.
type server struct {
	s    *session
	side state.Side
}

func (v server) ServerVersion(ctx context.Context) (minor, gitVersion string, err error) {
	c, err := v.s.open(ctx, v.side)
	if err != nil {
		return "", "", err
	}
	return c.ServerVersion(ctx)
}

// login is the command that renews the credentials of a side.
func (s *session) login(side state.Side) string {
	if side == state.Blue || side == state.Green {
		return aws.LoginCommand(s.account(side))
	}
	blue, green := aws.LoginCommand(s.account(state.Blue)), aws.LoginCommand(s.account(state.Green))
	if blue == green {
		return blue
	}
	return blue + "\n" + green
}

// whoPatience bounds the question who is calling: it is for the record alone, and
// some networks have no way to STS.
const whoPatience = 5 * time.Second

// arn is who calls, as STS says; empty where it does not say. It is asked once.
func (s *session) arn(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.caller != nil {
		return *s.caller
	}
	ctx, cancel := context.WithTimeout(aws.WithPatience(ctx, whoPatience), 2*whoPatience)
	defer cancel()
	arn, err := aws.WhoAmI(ctx, sts.NewFromConfig(s.configs[s.trafficAccount()]))
	if err != nil {
		s.say("Who runs this is recorded without its ARN: " + shortly(err))
	}
	s.caller = &arn
	return arn
}

func sum(content []byte) string {
	h := sha256.Sum256(content)
	return hex.EncodeToString(h[:])
}
