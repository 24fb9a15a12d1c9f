// Command wholeagent runs a whole agent in a sandbox: the loop, the agents
// that it calls, and everything that they execute. To keep the key out of the sandbox,
// use a run with tools; here the key goes in, for an agent that exists already
// or that must not run on this machine at all. See
// sandbox.Sandbox.RunProgram for what that costs.
//
//	export OPENAI_API_KEY=… OPENAI_MODEL=…
//	echo "What is the 20th Fibonacci number?" | wholeagent -local
//	echo "…" | wholeagent -dir path/to/agent -package openai python3 -m agent
//
// The agent reads the task from its standard input. It receives the variables
// OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL, and reaches only the
// host of that address.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// agent is an agent that needs only the standard library, and another one that it may call.
//
//go:embed agent
var agent embed.FS

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	dir := flag.String("dir", "", "`directory` of the agent; without it, the one of this example")
	var packages []string
	flag.Func("package", "`requirement` to install first, repeatable", func(requirement string) error {
		packages = append(packages, requirement)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := wholeagent(ctx, *here, packages, &sandbox.ProgramParams{
		Dir: *dir, Exclude: unwanted, Command: cmp.Or(strings.Join(flag.Args(), " "), "python3 main.py"),
		Timeout: time.Hour, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	stop()
	if failed, ok := errors.AsType[*sandbox.ExitError](err); ok {
		os.Exit(failed.Result.ExitCode) // its output was shown as it came
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wholeagent:", err)
		os.Exit(1)
	}
}

func wholeagent(ctx context.Context, here bool, packages []string, p *sandbox.ProgramParams) (err error) {
	if err := complete(p); err != nil {
		return err
	}
	var options []sandbox.Option
	if here {
		cloud, err := local.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = cloud.Options()
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		return run(ctx, sb, packages, p)
	}, options...)
}

// complete adds what every agent needs: the variables, and this example's files if
// there is no directory.
func complete(p *sandbox.ProgramParams) error {
	p.Envs = map[string]string{"OPENAI_BASE_URL": cmp.Or(os.Getenv("OPENAI_BASE_URL"), "https://api.openai.com/v1")}
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_MODEL"} {
		if p.Envs[name] = os.Getenv(name); p.Envs[name] == "" {
			return fmt.Errorf("%s is not set", name)
		}
	}
	if p.Dir != "" {
		return nil
	}
	content, err := agent.ReadFile("agent/main.py")
	p.Files = map[string][]byte{"main.py": content}
	return err
}

// run runs the agent in a network that reaches only its model. Packages are installed
// before that, from the index.
func run(ctx context.Context, sb *sandbox.Sandbox, packages []string, p *sandbox.ProgramParams) error {
	model, err := url.Parse(p.Envs["OPENAI_BASE_URL"])
	if err != nil {
		return err
	}
	if len(packages) > 0 {
		if _, err := sb.Packages.Install(ctx, packages...); err != nil {
			return err
		}
	}
	err = sb.SetNetwork(ctx, sandbox.Network{AllowOut: []string{model.Hostname()}, DenyOut: []string{sandbox.AllTraffic}})
	if err != nil {
		return err
	}
	_, err = sb.RunProgram(ctx, p)
	return err
}

// unwanted leaves out what no agent needs.
func unwanted(name string, _ fs.DirEntry) bool {
	switch path.Base(name) {
	case ".git", ".venv", ".env", "__pycache__":
		return true
	}
	return false
}
