package local_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func TestExamples(t *testing.T) { exampletest.Check(t) }

// The Python of sandboxes is prepared once per machine, which takes a minute; later
// Setup returns at once.
func ExampleSetup() {
	ctx := context.Background()
	python, err := local.Setup(ctx, os.Stderr)
	if err != nil {
		fmt.Println(err) // sandboxes then run the python3 of this machine as it is
		return
	}
	fmt.Println(python.Level, python.Path)
	cloud, err := local.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
}

func ExampleStart() {
	ctx := context.Background()
	cloud, err := local.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close() // ends all its sandboxes
	sb, err := sandbox.Create(ctx, cloud.Option())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sb.Close()
	execution, err := sb.RunCode(ctx, "6 * 7", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(execution.Text())
	// Output: 42
}

// Deno and Pyodide are fetched once per machine, through npm; later SetupWasm returns at once.
func ExampleSetupWasm() {
	ctx := context.Background()
	if _, err := local.SetupWasm(ctx, os.Stderr, nil); err != nil {
		fmt.Println(err) // it names the program to install, or the way to do without a network
		return
	}
	cloud, err := local.Start(ctx, local.WithEngine(local.EngineWasm))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	err = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		execution, err := sb.RunCode(ctx, "import sys; sys.platform", nil)
		if err != nil {
			return err
		}
		fmt.Println(execution.Text()) // emscripten
		return nil
	}, cloud.Option())
	if err != nil {
		fmt.Println(err)
	}
}

// Inject a fault to see how a program behaves when the service fails.
func ExampleCloud_Inject() {
	ctx := context.Background()
	cloud, err := local.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	err = cloud.Inject(local.Fault{Operation: local.OpCreateSandbox, Status: http.StatusServiceUnavailable, Message: "no room"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = sandbox.Create(ctx, cloud.Option())
	fmt.Println(errors.Is(err, api.ErrRetryable))
	for _, request := range cloud.Requests() {
		fmt.Println(request.Method, request.Path, request.Status)
	}
	// Output:
	// true
	// POST /v2/sandboxes 503
}
