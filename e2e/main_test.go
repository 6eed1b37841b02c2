package e2e_test

import (
	"testing"
)

func TestMain(m *testing.M) { m.Run() }
