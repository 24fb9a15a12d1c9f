// Command wholeagent runs a whole agent in a sandbox: the loop, the agents that it calls, and
// everything that they execute. The model's key is then in the sandbox, too. Use this form for an
// agent that exists already, or that must not run on this machine at all. To keep the key out of the
// sandbox, use a run with tools instead. See sandbox.Sandbox.RunProgram for the risks.
//
//	wholeagent -local
//	export OPENAI_API_KEY=… OPENAI_MODEL=…
//	echo "What is the 20th Fibonacci number?" | wholeagent -local
//	echo "…" | wholeagent -dir path/to/agent -package openai python3 -m agent
//
// Without OPENAI_API_KEY and OPENAI_MODEL the agent of this example solves a task of
// its own, with scripted answers.
//
// The agent reads the task from its standard input. It receives the variables
// OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL, and reaches only the
// host of that address.
package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
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

// agent contains an agent that needs only the standard library, and a second agent that the first
// one may call.
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
		os.Exit(failed.Result.ExitCode) // its output has been shown already
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wholeagent:", err)
		os.Exit(1)
	}
}

func wholeagent(ctx context.Context, here bool, packages []string, p *sandbox.ProgramParams) (err error) {
	prepare := complete
	if p.Dir == "" && os.Getenv("OPENAI_API_KEY") == "" && os.Getenv("OPENAI_MODEL") == "" {
		prepare = script
	}
	if err := prepare(p); err != nil {
		return err
	}
	var options []sandbox.CreateOption
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		return run(ctx, sb, packages, p)
	}, options...)
}

// complete adds to p the parts that every agent needs: the variables for the model and, without
// -dir, the files of this example.
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
	return addAgent(p)
}

func addAgent(p *sandbox.ProgramParams) error {
	content, err := agent.ReadFile("agent/main.py")
	p.Files = map[string][]byte{"main.py": content}
	return err
}

const fibonacci = "What is the 20th Fibonacci number? The first and the second are 1."

// answers contains the answers of a model to the task fibonacci. The model answers both as the
// manager and as the helper. The second answer calls the helper.
var answers = []string{
	"print(fibonacci(20))",
	"n = helper('Compute the 20th Fibonacci number. The first and the second are 1.')\nprint(n)",
	"a, b = 0, 1\nfor _ in range(20): a, b = b, a + b\nfinal_answer(a)",
	"final_answer(f'It is {n}.')",
}

// script makes the agent of this example solve its own task, without a model.
func script(p *sandbox.ProgramParams) error {
	text, err := json.Marshal(answers)
	if err != nil {
		return err
	}
	p.Envs, p.Stdin = map[string]string{"SCRIPT": string(text)}, strings.NewReader(fibonacci)
	if _, err := fmt.Fprintln(p.Stderr, "no model is set (OPENAI_MODEL, OPENAI_API_KEY): a scripted one answers"); err != nil {
		return err
	}
	return addAgent(p)
}

// run runs the agent with a network that reaches only its model. Before that, it installs the
// packages from the index.
func run(ctx context.Context, sb *sandbox.Sandbox, packages []string, p *sandbox.ProgramParams) error {
	model, err := url.Parse(p.Envs["OPENAI_BASE_URL"])
	if err != nil {
		return err
	}
	if len(packages) > 0 {
		if _, err := sb.Packages.Install(ctx, packages, nil); err != nil {
			return err
		}
	}
	network := sandbox.Network{DenyOut: []string{sandbox.AllTraffic}}
	if host := model.Hostname(); host != "" { // a scripted model has no host
		network.AllowOut = []string{host}
	}
	if err := sb.SetNetwork(ctx, network); err != nil {
		return err
	}
	_, err = sb.RunProgram(ctx, p)
	return err
}

// unwanted reports whether to leave out a file. No agent needs the files that are left out.
func unwanted(name string, _ fs.DirEntry) bool {
	switch path.Base(name) {
	case ".git", ".venv", ".env", "__pycache__":
		return true
	}
	return false
}
