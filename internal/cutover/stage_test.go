package cutover

import (
	"context"
	"testing"
)

func TestStagesMoveEverything(t *testing.T) {
	w := newWorld(t)
	if err := w.walk(context.Background()); err != nil {
		t.Fatalf("walk: %v", err)
	}
	w.wantWhere(atEnd)
}
