package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestWheelIsFresh(t *testing.T) {
	t.Parallel()
	want, err := build()
	must.Do(t, err)
	got, err := os.ReadFile(wheel)
	must.Do(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what its source gives: run go generate ./examples/quickstart", wheel)
	}
}
