package state

import (
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

// NewID makes an id for a run or a lineage that sorts by time and is safe in file
// names: 20261130T010211-ab12cd. random is crypto/rand.Reader outside of tests.
func NewID(now time.Time, random io.Reader) (string, error) {
	var b [3]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return now.UTC().Format("20060102T150405") + "-" + hex.EncodeToString(b[:]), nil
}
