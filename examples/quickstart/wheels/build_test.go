package main

import (
	"bytes"
	"os"
	"testing"
)

func TestWheelIsFresh(t *testing.T) {
	t.Parallel()
	want, err := build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what its source gives: run go generate ./examples/quickstart", wheel)
	}
}
