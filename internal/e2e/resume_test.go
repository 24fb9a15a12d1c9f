//go:build linux

package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/relaytest"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestOutputAfterCuts checks that a command's output is complete, and none of it comes twice,
// wherever the connection is cut.
func TestOutputAfterCuts(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	r := relaytest.New(t, cloud.URL())
	sb := cloud.Create(t, sandbox.WithSandboxURL(r.URL()))
	const want = "one\ntwo\n"
	for n, cut := int64(0), true; cut; n++ {
		next := []int64{n, -1}
		r.CutAfter(func() int64 {
			cut = len(next) == 1
			defer func() { next = next[1:] }()
			return next[0]
		})
		var out bytes.Buffer
		result, err := sb.Commands.Exec(t.Context(), "printf", []string{"one\\ntwo\\n"}, &sandbox.CommandParams{Stdout: &out})
		if err != nil || out.String() != want || result.Stdout != want || result.OutputCut {
			t.Fatalf("cut after %d bytes: got %q, %+v and error %v, want %q", n, out.String(), result, err, want)
		}
	}
}

// TestMuchOutputAfterCuts does the same with much output and cuts at random.
func TestMuchOutputAfterCuts(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	cloud := shared(t)
	r := relaytest.New(t, cloud.URL())
	sb := cloud.Create(t, sandbox.WithSandboxURL(r.URL()))
	cuts := 0
	r.CutAfter(func() int64 { cuts++; return random.Int64N(8 << 20) })
	hash, n := sha256.New(), new(counting)
	result, err := sb.Commands.Run(t.Context(), fmt.Sprintf("seq 1 99999999 | head -c %d | tee >(sha256sum >&2)", size),
		&sandbox.CommandParams{Stdout: io.MultiWriter(hash, n), MaxOutputBytes: 1 << 10})
	must.Do(t, err)
	if got := fmt.Sprintf("%x  -\n", hash.Sum(nil)); got != result.Stderr || n.n != size {
		t.Errorf("%d cuts: got %d bytes with hash %q, want %d with %q", cuts, n.n, got, size, result.Stderr)
	}
	t.Logf("%d cuts", cuts)
}

// TestOutputWhileNobodyListens checks that a process goes on without a client, that its newest output is
// kept, and that a client learns how many bytes are not.
func TestOutputWhileNobodyListens(t *testing.T) {
	t.Parallel()
	const newest = 1 << 20
	sb := shared(t).Create(t)
	command, err := sb.Commands.Start(t.Context(), fmt.Sprintf("exec head -c %d /dev/zero", muchOutput), nil)
	must.Do(t, err)
	command.Disconnect()
	patience.Until(t, "the end of a process that nobody listens to", func() bool {
		list, err := sb.Commands.List(t.Context(), nil)
		must.Do(t, err)
		return len(list) == 0
	})
	connect := func(from int64) (*sandbox.Command, error) {
		return sb.Commands.Connect(t.Context(), sandbox.ByPID(command.PID()), &sandbox.CommandConnectParams{From: &from, MaxOutputBytes: 2 * newest})
	}
	_, err = connect(0)
	lost, ok := errors.AsType[*sandbox.OutputLostError](err)
	if !ok || lost.From != 0 || lost.Missing > muchOutput-newest || lost.Missing < muchOutput-2*newest {
		t.Fatalf("from the first byte on: got %v, want that all but the newest megabyte is no longer kept", err)
	}
	again, err := connect(lost.Missing)
	must.Do(t, err)
	result, err := again.Wait(t.Context())
	if err != nil || int64(len(result.Stdout)) != muchOutput-lost.Missing {
		t.Errorf("from byte %d on: got %d bytes and error %v, want %d", lost.Missing, len(result.Stdout), err, muchOutput-lost.Missing)
	}
	if _, err := connect(muchOutput + 1); err == nil {
		t.Error("got no error for a byte that never came")
	}
}

// counting counts bytes.
type counting struct{ n int }

func (c *counting) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}
