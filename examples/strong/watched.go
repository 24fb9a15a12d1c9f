package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

var (
	//go:embed prepare.py
	prepareCode string
	//go:embed counter.py
	counterProgram string
)

// port is the port of the counter in a sandbox.
const port = 3000

// watched is a sandbox with the values that its memory contained at the last check.
type watched struct {
	*sandbox.Sandbox
	variables
	counter
}

// variables contains the variables of the code. KernelPID is the id of the process that runs the
// code.
type variables struct {
	KernelPID int     `json:"kernel"`
	Points    int     `json:"points"`
	Steps     int     `json:"steps"`
	Error     float64 `json:"error"`
}

// counter is a process that counts its requests.
type counter struct {
	CounterPID int `json:"counter"`
	Count      int `json:"count"`
}

func (s *watched) String() string {
	return fmt.Sprintf("%d points and %d steps, which leave an error of %.3g, in process %d; asked %d times is process %d",
		s.Points, s.Steps, s.Error, s.KernelPID, s.Count, s.CounterPID)
}

// prepare creates, in a sandbox, a state that exists only in memory.
func prepare(ctx context.Context, sb *sandbox.Sandbox) (*watched, error) {
	if err := sb.Files.WriteText(ctx, "counter.py", counterProgram, nil); err != nil {
		return nil, err
	}
	if _, err := sb.Commands.Start(ctx, "exec python3 counter.py", nil); err != nil {
		return nil, err
	}
	if err := sb.WaitPort(ctx, port); err != nil {
		return nil, err
	}
	s := &watched{Sandbox: sb}
	if err := s.change(ctx, prepareCode); err != nil {
		return nil, err
	}
	var err error
	s.counter, err = s.ask(ctx)
	return s, err
}

// copy returns a watched for sb, a copy of the sandbox of s. sb must have the same variables and
// the same counter.
func (s *watched) copy(sb *sandbox.Sandbox) *watched {
	return &watched{Sandbox: sb, variables: s.variables, counter: s.counter}
}

// change runs code, and then reads the variables.
func (s *watched) change(ctx context.Context, code string) (err error) {
	s.variables, err = s.evaluate(ctx, code+"\nstate()")
	return err
}

func (s *watched) evaluate(ctx context.Context, code string) (v variables, err error) {
	execution, err := s.RunCode(ctx, code, nil)
	if err != nil {
		return v, err
	}
	return v, execution.Decode(&v)
}

// ask sends a request to the counter.
func (s *watched) ask(ctx context.Context) (c counter, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(port), nil)
	if err != nil {
		return c, err
	}
	answer, err := (&http.Client{Transport: s.Transport(port)}).Do(request)
	if err != nil {
		return c, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(body, &c)
}

// goesOn checks that the sandbox continued from its last known state. The variables must have the
// same values. The counter must be the same process, and must have counted one more request.
func (s *watched) goesOn(ctx context.Context) error {
	v, err := s.evaluate(ctx, "state()")
	if err != nil {
		return err
	}
	if v != s.variables {
		return fmt.Errorf("the variables are %+v, and were %+v", v, s.variables)
	}
	c, err := s.ask(ctx)
	if err != nil {
		return err
	}
	if c.CounterPID != s.CounterPID || c.Count != s.Count+1 {
		return fmt.Errorf("the counter is %+v, and was %+v", c, s.counter)
	}
	s.counter = c
	return nil
}

// clock returns a function that returns the time since the call of clock.
func clock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start).Round(time.Millisecond) }
}
