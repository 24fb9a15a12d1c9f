package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// attacks lists attempts of hostile code, each with a name and the expected result. No guard is set
// for them. A guard helps a model, but these attempts must fail because of the isolation alone.
var attacks = []struct {
	what, code string
	want       string
	timeout    time.Duration
}{
	{what: "files of the host", code: "open('/etc/passwd').read()", want: "FileNotFoundError"},
	{what: "the same past Python", code: "import js\njs.Deno.readTextFileSync('/etc/passwd')", want: "NotCapable"},
	{what: "programs of the host", code: "js.Deno.Command.new('/bin/sh').outputSync()", want: "NotCapable"},
	{what: "the network", code: "import urllib.request\nurllib.request.urlopen('http://192.0.2.1')", want: "URLError"},
	{what: "a server of its own", code: "js.Deno.listen(port=0)", want: "NotCapable"},
	{what: "an endless loop", code: "while True: pass", want: "KeyboardInterrupt", timeout: time.Second},
	{what: "all memory", code: "hoard = []\nwhile True: hoard.append(bytearray(1 << 20))", want: "MemoryError"},
}

// attack runs hostile code. It checks that every attempt has its expected result, and that the
// variables of the sandbox survive.
func attack(ctx context.Context, w io.Writer, sb *sandbox.Sandbox) error {
	if _, err := sb.RunCode(ctx, "mine = 'untouched'", nil); err != nil {
		return err
	}
	for _, a := range attacks {
		fmt.Fprintf(w, "--- hostile: %s\n%s\n", a.what, a.code)
		observation, err := try(ctx, sb, a.code, a.timeout)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "--- gave\n%s", observation)
		if !strings.Contains(observation, a.want) {
			return fmt.Errorf("%s: want %s", a.what, a.want)
		}
	}
	execution, err := sb.RunCode(ctx, "mine", nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "=> %d attacks, and the agent's variables are %s\n", len(attacks), execution.Text())
	return nil
}

// try runs code as a step of an agent, and returns the observation that a model would receive. A
// step that takes too long is interrupted.
func try(ctx context.Context, sb *sandbox.Sandbox, code string, timeout time.Duration) (_ string, err error) {
	run, err := agent.Begin(ctx, sb, &agent.Params{Limits: agent.Limits{StepTimeout: timeout}})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	step, err := run.Exec(ctx, code)
	if err != nil && !errors.Is(err, agent.ErrStepTimeout) {
		return "", err
	}
	return step.Observation(), nil
}
