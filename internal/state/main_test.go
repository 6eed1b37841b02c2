package state_test

import (
	"bufio"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/state"
)

// holdEnv makes the test binary a second process that opens the journal named in it,
// says what came of it, and keeps it until its standard input ends.
const holdEnv = "EKSBG_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		j, _, err := state.Open(path, newClock())
		if err == nil {
			_, err = j.Append(state.Record{Kind: state.RecordResumed, Who: &state.Who{User: "other", Host: "laptop", PID: os.Getpid()}})
		}
		fmt.Println(err)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0) // without Close, as after a crash
	}
	goleak.VerifyTestMain(m)
}
