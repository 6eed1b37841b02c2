package lease

import (
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// Held says that somebody else has the lock and keeps renewing it (exit 6). Nothing
// was taken.
type Held struct {
	Cluster string
	Holder  Holder
}

// Error names the holder.
func (e *Held) Error() string {
	return fmt.Sprintf("the lock in cluster %s is held by %s", e.Cluster, e.Holder)
}

// Unwrap gives the stop with the exit code and the cure.
func (e *Held) Unwrap() error {
	return &state.Stop{Code: state.ExitLocked, Why: e.Error(),
		Cure: "wait until it ends, or stop it there; if that process is gone, its lock is free a minute after its last renewal, or at once with eksbg unlock"}
}

// Lost says that the lock was ours and another holder was read back (exit 6). It is
// the cause with which the work is cancelled.
type Lost struct {
	Cluster string
	// Holder has the lock now, or had it since it was ours.
	Holder Holder
}

// LockLost marks the error; see state.LockLost.
func (e *Lost) LockLost() {}

// Error names who has it now.
func (e *Lost) Error() string {
	if e.Holder.Identity == "" {
		return fmt.Sprintf("the lock in cluster %s was lost: %s took it meanwhile", e.Cluster, e.Holder)
	}
	return fmt.Sprintf("the lock in cluster %s was lost: it is held by %s now", e.Cluster, e.Holder)
}

// Unwrap gives the stop with the exit code and the cure.
func (e *Lost) Unwrap() error {
	return &state.Stop{Code: state.ExitLocked, Why: e.Error(),
		Cure: "talk to whoever took it; when they are done, look at the pair with eksbg plan before you go on"}
}

// errReleased is what Guard says after Release.
var errReleased = errors.New("the lock has been given back")

// ErrMoved is returned by Found.Clear when the Lease is not as it was shown any more:
// it was renewed, so its holder lives, or somebody else has it.
var ErrMoved = errors.New("the lock was written meanwhile: its holder is alive, or another one has it; nothing was cleared")

// explain gives the errors of an API server the cure.
func explain(cluster string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return forbidden("take", cluster, err)
	}
	return fmt.Errorf("take the lock in cluster %s: %w", cluster, err)
}

// forbidden is the stop where an API server refuses what has to be done with the Lease.
func forbidden(what, cluster string, err error) error {
	return &state.Stop{Code: state.ExitBlocked, Cause: err,
		Why:  "not allowed to " + what + " the lock in cluster " + cluster,
		Cure: "allow the caller to get, create and update leases of coordination.k8s.io in " + Namespace + " (docs/permissions.md)"}
}

// unsettled says that each write of the Lease met another one than the one just read,
// and nobody knows whose.
func unsettled(cluster string) error {
	return &state.Stop{Code: state.ExitResumable,
		Why: fmt.Sprintf("the Lease %s/%s in cluster %s changed between each of %d reads and writes", Namespace, Name, cluster, mostTries),
		Cure: "run the same command again; if it goes on, see under managedFields what keeps writing the Lease, and stop that\n" +
			fmt.Sprintf("kubectl -n %s get lease %s -o yaml --show-managed-fields", Namespace, Name)}
}

// reason is why a renewal failed, without the address and the count of attempts.
func reason(err error) string {
	var gave *aws.GaveUpError
	if errors.As(err, &gave) {
		err = gave.Err
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return aws.Message(err)
}
