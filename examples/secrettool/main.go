// Command secrettool lets a model's code work on the issues of a repository without giving the code
// the token: the code runs in a sandbox and calls two functions of this program, and only this
// program has the token.
//
//	secrettool -local
//	GITHUB_TOKEN=… secrettool -local owner/repository
//	secrettool -api https://issues.example.com owner/repository step1.py step2.py
//
// Without a repository and a token the issues are made up: this process serves them. Without files
// it runs the snippets of this example. Before it writes a comment, it asks the user at the
// terminal. The sandbox has no network at all: the tools are the only way out.
package main

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

//go:embed snippets/*.py
var snippets embed.FS

// github is the default API.
const github = "https://api.github.com"

const usage = `Usage: GITHUB_TOKEN=TOKEN secrettool [flags] OWNER/REPOSITORY [FILE...]

Each FILE is Python that works on the issues of the repository. Without OWNER/REPOSITORY and
without a token the issues are made up; without FILE the code is this example's own.

`

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	address := flag.String("api", github, "`address` of the issues' API")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := secrettool(ctx, *here, *address, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "secrettool:", err)
		os.Exit(1)
	}
}

func secrettool(ctx context.Context, here bool, address string, arguments []string) (err error) {
	token := os.Getenv("GITHUB_TOKEN")
	if len(arguments) == 0 && token == "" && address == github {
		var made *madeUp
		if made, err = serveIssues(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, made.Close()) }()
		address, token, arguments = made.URL, made.token, []string{"example/made-up"}
		fmt.Fprintln(os.Stderr, "no repository is named and no GITHUB_TOKEN set: the issues are made up")
	}
	if len(arguments) == 0 {
		return errors.New("which repository? See -h")
	}
	issues, err := newTracker(address, arguments[0], token)
	if err != nil {
		return err
	}
	steps, err := code(arguments[1:])
	if err != nil {
		return err
	}
	options := []sandbox.CreateOption{sandbox.WithInternet(false), sandbox.WithPrivateTraffic()}
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		return work(ctx, os.Stdout, sb, issues, ask(os.Stdin, os.Stderr), steps)
	}, options...)
}

// code reads the files, or returns the example's own snippets.
func code(files []string) ([]string, error) {
	read := os.ReadFile
	if len(files) == 0 {
		read, files = snippets.ReadFile, []string{"snippets/labels.py", "snippets/remind.py"}
	}
	var steps []string
	for _, file := range files {
		content, err := read(file)
		if err != nil {
			return nil, err
		}
		steps = append(steps, string(content))
	}
	return steps, nil
}

// work runs the steps one after another until one gives the final answer.
func work(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, issues *tracker, approve approval, steps []string) (err error) {
	run, err := agent.Begin(ctx, sb, &agent.Params{
		Tools:  issues.tools(approve),
		Limits: agent.Limits{StepTimeout: 5 * time.Minute},
		// The tools do not reveal the token. If an answer of the API ever repeats it,
		// the code gets "[redacted]" in its place.
		Redact: []string{issues.token},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	for _, code := range steps {
		step, err := run.Exec(ctx, code)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "--- step %d\n%s\n--- gave\n%s", step.N, strings.TrimSuffix(code, "\n"), step.Observation())
		if step.Final {
			return nil
		}
	}
	return errors.New("the code gave no final answer")
}

// approval asks a question. It returns nil if the answer is yes. Otherwise it returns an error with
// the reason.
type approval func(ctx context.Context, question string) error

// ask returns an approval that asks the person at the terminal. It asks one question at a time.
func ask(in io.Reader, out io.Writer) approval {
	var asking sync.Mutex
	lines := bufio.NewReader(in)
	return func(ctx context.Context, question string) error {
		asking.Lock()
		defer asking.Unlock()
		fmt.Fprintf(out, "%s? [y/N] ", question)
		answer := make(chan string, 1)
		go func() {
			line, _ := lines.ReadString('\n')
			answer <- strings.TrimSpace(line)
		}()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case line := <-answer:
			if line != "y" {
				return errors.New("the user said no")
			}
			return nil
		}
	}
}
