package lease

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/eksbg/eksbg/internal/state"
)

// The annotations that say for people, and for the next holder, who has a Lease. They
// stay when it is given back, so that it names its last holder.
const (
	prefix      = "eksbg.dev/"
	keyUser     = prefix + "user"
	keyHost     = prefix + "host"
	keyPID      = prefix + "pid"
	keyARN      = prefix + "arn"
	keyMachine  = prefix + "machine"
	keyPair     = prefix + "pair"
	keyRun      = prefix + "run"
	keyOp       = prefix + "operation"
	managedBy   = "app.kubernetes.io/managed-by"
	managedName = "eksbg"
)

// Holder is a process that holds the lock of a cluster, or held it last.
type Holder struct {
	// Identity is what tells this process from every other one; see NewIdentity.
	Identity string
	// Who is the person or the pipeline.
	Who state.Who
	// Machine tells the running system in which Who.PID means something from every
	// other one; empty where it cannot be told.
	Machine string
	// Pair, Run and Operation are what it is held for: shop, a run id, "apply".
	Pair, Run, Operation string
	// Since is when it was taken, Renewed when it was last written, both by the clock
	// of the holder.
	Since, Renewed time.Time
}

// NewIdentity makes the identity of a process: bastion_4711_9f0c12ab34de. random is
// crypto/rand.Reader outside of tests.
func NewIdentity(who state.Who, random io.Reader) (string, error) {
	var b [6]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("make the identity of a lock's holder: %w", err)
	}
	return fmt.Sprintf("%s_%d_%s", who.Host, who.PID, hex.EncodeToString(b[:])), nil
}

// String names the holder in one line: "ops on bastion, pid 4711 (apply of shop, run
// 20261130T010211-ab12cd, since 2026-11-30 01:02:11 UTC)".
func (h Holder) String() string {
	who := h.Who
	who.ARN = "" // long, and the rest tells more; unlock shows it
	name := who.String()
	if who == (state.Who{}) && h.Identity != "" {
		name = h.Identity
	}
	var of []string
	switch {
	case h.Operation != "" && h.Pair != "":
		of = append(of, h.Operation+" of "+h.Pair)
	case h.Operation != "":
		of = append(of, h.Operation)
	}
	if h.Run != "" {
		of = append(of, "run "+h.Run)
	}
	if !h.Since.IsZero() {
		of = append(of, "since "+h.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if len(of) == 0 {
		return name
	}
	return name + " (" + strings.Join(of, ", ") + ")"
}

// holderOf reads the holder out of a Lease. Everybody who may write Leases may have
// written it, so texts are cleaned.
func holderOf(l *coordinationv1.Lease) Holder {
	text := func(key string) string { return clip(state.Clean(l.Annotations[key])) }
	h := Holder{
		Who:     state.Who{ARN: text(keyARN), User: text(keyUser), Host: text(keyHost)},
		Machine: text(keyMachine), Pair: text(keyPair), Run: text(keyRun), Operation: text(keyOp),
	}
	h.Who.PID, _ = strconv.Atoi(text(keyPID)) // a number that is none names no process
	if l.Spec.HolderIdentity != nil {
		h.Identity = clip(state.Clean(*l.Spec.HolderIdentity))
	}
	if l.Spec.AcquireTime != nil {
		h.Since = l.Spec.AcquireTime.Time
	}
	if l.Spec.RenewTime != nil {
		h.Renewed = l.Spec.RenewTime.Time
	}
	return h
}

// mostText bounds what is shown of an annotation.
const mostText = 200

func clip(s string) string {
	if r := []rune(s); len(r) > mostText {
		return string(r[:mostText]) + "..."
	}
	return s
}

// sign writes the holder into the annotations of a Lease.
func (h Holder) sign(l *coordinationv1.Lease) {
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[managedBy] = managedName
	pid := ""
	if h.Who.PID != 0 {
		pid = strconv.Itoa(h.Who.PID)
	}
	for key, v := range map[string]string{
		keyUser: h.Who.User, keyHost: h.Who.Host, keyPID: pid, keyARN: h.Who.ARN,
		keyMachine: h.Machine, keyPair: h.Pair, keyRun: h.Run, keyOp: h.Operation,
	} {
		if v == "" {
			delete(l.Annotations, key)
			continue
		}
		l.Annotations[key] = v
	}
}
