package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
)

// These variables make this binary another program, when a test runs it as a process.
const (
	recordVariable  = "DOCTOR_TEST_RECORD"  // the record of the local cloud that it is until its input ends
	refusedVariable = "DOCTOR_TEST_REFUSED" // the error with which e2bctl run fails; "": it succeeds
)

// TestMain lets this binary be e2bctl run, which doctor --fix tries, and the local cloud of another process. Otherwise
// it would run all tests again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		if text := os.Getenv(refusedVariable); text != "" {
			panic(text)
		}
		return
	}
	text := os.Getenv(recordVariable)
	if text == "" {
		m.Run()
		return
	}
	if err := beCloud(text); err != nil {
		panic(err)
	}
}

// beCloud has the place of the local cloud until the input ends.
func beCloud(text string) error {
	var record localcloud.Record
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return err
	}
	place, err := localcloud.Find()
	if err != nil {
		return err
	}
	release, err := place.Claim()
	if err != nil {
		return err
	}
	defer release()
	if err := place.Publish(record); err != nil {
		return err
	}
	if _, err := io.WriteString(os.Stdout, "ready\n"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startCloud starts a process that is the user's local cloud with a record. The returned function ends it, as the end of
// the test does.
func startCloud(t *testing.T, record localcloud.Record) (end func()) {
	t.Helper()
	text, err := json.Marshal(record)
	must.Do(t, err)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), recordVariable+"="+string(text))
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	ended := false
	end = func() {
		if !ended {
			ended = true
			must.Do(t, errors.Join(in.Close(), cmd.Wait()))
		}
	}
	t.Cleanup(end)
	ready := make([]byte, len("ready\n"))
	_, err = io.ReadFull(out, ready)
	must.Do(t, err)
	return end
}
