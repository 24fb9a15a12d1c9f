package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/sandbox"
)

func TestExamples(t *testing.T) { exampletest.Check(t) }

func ExampleCreate() {
	defer exampletest.StartCloud()() // only here: your program has E2B_API_KEY, or local.Start

	ctx := context.Background()
	sb, err := sandbox.Create(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sb.Close() // the end of the sandbox, too

	result, err := sb.Commands.Run(ctx, "echo hello from $(uname)", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(result.Stdout)
	// Output: hello from Linux
}

// Use creates a sandbox, and closes it however the function ends.
func ExampleUse() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "pwd", nil)
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)
		return nil
	}, sandbox.WithExpiry(sandbox.Expiry{After: 10 * time.Minute}), sandbox.WithInternet(false))
	if err != nil {
		fmt.Println(err)
	}
	// Output: /home/user
}

// A pool has sandboxes ready before anybody asks for one.
func ExampleClient_NewPool() {
	defer exampletest.StartCloud()()

	ctx := context.Background()
	client, err := sandbox.NewClient()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	pool, err := client.NewPool(&sandbox.PoolParams{Warm: 2, MaxSandboxes: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	for task := range 3 {
		sb, err := pool.Get(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		result, err := sb.Commands.Run(ctx, fmt.Sprintf("expr %d + 1", task), nil)
		if err == nil {
			fmt.Print(result.Stdout)
		}
		sb.Close() // a task gets a sandbox of its own
	}
	// Output:
	// 1
	// 2
	// 3
}

// A paused sandbox waits until it is resumed, here or, with sandbox.Connect, in
// another program. Its processes and the variables of its code are still there.
func ExampleSandbox_Pause() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if _, err := sb.RunCode(ctx, "x = 41", nil); err != nil {
			return err
		}
		if err := sb.Pause(ctx, nil); err != nil {
			return err
		}
		info, err := sb.Info(ctx)
		if err != nil {
			return err
		}
		fmt.Println(info.State)

		if err := sb.Resume(ctx, nil); err != nil {
			return err
		}
		execution, err := sb.RunCode(ctx, "x + 1", nil)
		if err != nil {
			return err
		}
		fmt.Println(execution.Text())
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// paused
	// 42
}

// A sandbox that is paused when its lifetime is over, or by hand, and that any call
// wakes up again.
func ExampleWithExpiry() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Pause(ctx, nil); err != nil {
			return err
		}
		result, err := sb.Commands.Run(ctx, "echo awake", nil)
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)
		return nil
	}, sandbox.WithExpiry(sandbox.Expiry{After: 10 * time.Minute, Then: sandbox.ThenPause, Resume: true}))
	if err != nil {
		fmt.Println(err)
	}
	// Output: awake
}

// The sandbox of a name keeps its variables from one use to the next.
func ExampleClient_GetOrCreate() {
	defer exampletest.StartCloud()()

	client, err := sandbox.NewClient()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	turn := func(code string) error {
		sb, err := client.GetOrCreate(ctx, "conversation 7", sandbox.WithExpiry(sandbox.Expiry{After: 10 * time.Minute}))
		if err != nil {
			return err
		}
		defer sb.Close() // leaves the sandbox
		execution, err := sb.RunCode(ctx, code, nil)
		if err != nil {
			return err
		}
		fmt.Println(execution.Text())
		return nil
	}
	for _, code := range []string{"x = 40; x", "x + 2"} {
		if err := turn(code); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 40
	// 42
}

// Copies of a sandbox go different ways from one point on.
func ExampleSandbox_Fork() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Files.WriteText(ctx, "story.txt", "Once upon a time", nil); err != nil {
			return err
		}
		forks, err := sb.Fork(ctx, &sandbox.ForkParams{Count: 2})
		if err != nil {
			return err
		}
		for _, fork := range forks {
			defer fork.Sandbox.Close()
		}
		for i, fork := range forks {
			if fork.Err != nil {
				return fork.Err
			}
			end := []string{", all was well.", ", nothing was."}[i]
			result, err := fork.Sandbox.Commands.Run(ctx, "cat >>story.txt; cat story.txt", &sandbox.CommandParams{Stdin: strings.NewReader(end)})
			if err != nil {
				return err
			}
			fmt.Println(result.Stdout)
		}
		story, err := sb.Files.ReadText(ctx, "story.txt", nil)
		fmt.Println(story)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// Once upon a time, all was well.
	// Once upon a time, nothing was.
	// Once upon a time
}

// A state that is kept, and sandboxes that are made from it when the first one has
// ended.
func ExampleSandbox_Snapshot() {
	defer exampletest.StartCloud()()

	var snapshot *sandbox.Snapshot
	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		_, err := sb.Commands.Run(ctx, "mkdir project; echo ready >project/state", nil)
		if err == nil {
			snapshot, err = sb.Snapshot(ctx, &sandbox.SnapshotParams{Name: "prepared:v1"})
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "cat project/state", nil)
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)
		return nil
	}, sandbox.WithTemplate(snapshot.ID))
	if err != nil {
		fmt.Println(err)
	}
	// Output: ready
}

// Variables stay from one call to the next, and the value of the last expression
// comes back.
func ExampleSandbox_RunCode() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if _, err := sb.RunCode(ctx, "prices = {'apple': 1.5, 'pear': 2}", nil); err != nil {
			return err
		}
		execution, err := sb.RunCode(ctx, "print('adding')\nsum(prices.values())", &sandbox.RunCodeParams{Stdout: os.Stdout})
		if err != nil {
			return err
		}
		var sum float64
		if err := execution.Decode(&sum); err != nil {
			return err
		}
		fmt.Println(sum)

		_, err = sb.RunCode(ctx, "prices['fig']", nil)
		if exception, ok := errors.AsType[*sandbox.ExecutionError](err); ok {
			fmt.Println(exception.Name, exception.Value)
			return nil
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// adding
	// 3.5
	// KeyError 'fig'
}

// Values come back with their types.
func ExampleEval() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if _, err := sb.RunCode(ctx, "fruit = {'apple': 1.5, 'pear': 2}", nil); err != nil {
			return err
		}
		prices, err := sandbox.Eval[map[string]float64](ctx, sb, "fruit")
		if err != nil {
			return err
		}
		fmt.Println(prices["apple"], prices["pear"])
		_, err = sandbox.Eval[int](ctx, sb, "fruit['fig']")
		fmt.Println(err)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1.5 2
	// KeyError: 'fig'
}

func ExampleSandbox_StreamCode() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		for event, err := range sb.StreamCode(ctx, "for i in range(3): print(i)\n6 * 7", nil) {
			if err != nil {
				return err
			}
			switch e := event.(type) {
			case sandbox.OutputEvent:
				fmt.Print(e.Text)
			case sandbox.EndEvent:
				var answer int
				if err := e.Execution.Decode(&answer); err != nil {
					return err
				}
				fmt.Println("the value is", answer)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0
	// 1
	// 2
	// the value is 42
}

func ExampleFiles() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		// Relative paths start at the user's home; missing directories are made.
		if err := sb.Files.WriteText(ctx, "data/fruit.csv", "apple,1.5\npear,2\n", nil); err != nil {
			return err
		}
		entries, err := sb.Files.List(ctx, "data", nil)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			fmt.Println(entry.Path, entry.Size)
		}
		text, err := sb.Files.ReadText(ctx, "data/fruit.csv", nil)
		if err != nil {
			return err
		}
		fmt.Print(text)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// /home/user/data/fruit.csv 17
	// apple,1.5
	// pear,2
}

// An embed.FS, for instance, is such a file system.
func ExampleFiles_CopyFS() {
	defer exampletest.StartCloud()()

	project := fstest.MapFS{"main.py": {Data: []byte("print('copied')\n")}, "data/in.csv": {Data: []byte("1,2\n")}}
	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Files.CopyFS(ctx, project, "project"); err != nil {
			return err
		}
		result, err := sb.Commands.Exec(ctx, "python3", []string{"project/main.py"}, nil)
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)
		fmt.Println("again:", errors.Is(sb.Files.CopyFS(ctx, project, "project"), fs.ErrExist))
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// copied
	// again: true
}

func ExampleFiles_Watch() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Files.MakeDir(ctx, "inbox", nil); err != nil {
			return err
		}
		watcher, err := sb.Files.Watch(ctx, "inbox", nil)
		if err != nil {
			return err
		}
		defer watcher.Close()
		if _, err := sb.Commands.Run(ctx, "echo hello >inbox/letter.txt", nil); err != nil {
			return err
		}
		for event, err := range watcher.Events(ctx) {
			if err != nil {
				return err
			}
			fmt.Println(event.Type, event.Name)
			break // or continue until Close
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: create letter.txt
}

func ExampleGit() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		// Or sb.Git.Clone.
		if err := sb.Git.Init(ctx, "project", &sandbox.GitInitParams{InitialBranch: "main"}); err != nil {
			return err
		}
		if err := sb.Git.ConfigureUser(ctx, "Ada", "ada@example.com", nil); err != nil {
			return err
		}
		if err := sb.Files.WriteText(ctx, "project/README.md", "# Project\n", nil); err != nil {
			return err
		}
		status, err := sb.Git.Status(ctx, "project", nil)
		if err != nil {
			return err
		}
		for _, file := range status.Files {
			fmt.Println(file.Path, file.Label())
		}
		if err := sb.Git.Add(ctx, "project", nil); err != nil {
			return err
		}
		if _, err := sb.Git.Commit(ctx, "project", "Say what it is", nil); err != nil {
			return err
		}
		// Credentials of GitPushParams are for remotes over https.
		if err := sb.Git.Init(ctx, "origin.git", &sandbox.GitInitParams{Bare: true}); err != nil {
			return err
		}
		if err := sb.Git.AddRemote(ctx, "project", "origin", "../origin.git", nil); err != nil {
			return err
		}
		if err := sb.Git.Push(ctx, "project", &sandbox.GitPushParams{Remote: "origin"}); err != nil {
			return err
		}
		if status, err = sb.Git.Status(ctx, "project", nil); err != nil {
			return err
		}
		fmt.Println(status.Branch, status.Upstream, status.Clean())
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// README.md untracked
	// main origin/main true
}

// A TCP connection to a server in the sandbox.
func ExampleSandbox_Dial() {
	defer exampletest.StartCloud()()

	const server = `
import socket
with socket.create_server(("", 7000)) as s:
    while True:
        connection, _ = s.accept()
        connection.sendall(connection.recv(100).upper())
        connection.close()
`
	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Files.WriteText(ctx, "server.py", server, nil); err != nil {
			return err
		}
		if _, err := sb.Commands.Start(ctx, "exec python3 server.py", nil); err != nil {
			return err
		}
		if err := sb.WaitPort(ctx, 7000); err != nil { // it still starts
			return err
		}
		conn, err := sb.Dial(ctx, 7000)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			return err
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		fmt.Print(answer)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: HELLO
}

// A server in the sandbox behind one of this program's.
func ExampleSandbox_Handler() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Files.WriteText(ctx, "site/index.html", "hello from the sandbox\n", nil); err != nil {
			return err
		}
		if _, err := sb.Commands.Start(ctx, "exec python3 -m http.server 8000 -d site", nil); err != nil {
			return err
		}
		if err := sb.WaitPort(ctx, 8000); err != nil { // it still starts
			return err
		}
		front := httptest.NewServer(sb.Handler(8000)) // or http.Handle and http.ListenAndServe
		defer front.Close()
		response, err := http.Get(front.URL)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(os.Stdout, response.Body)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: hello from the sandbox
}

// An address of this machine for a port of the sandbox.
func ExampleSandbox_Forward() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Files.WriteText(ctx, "site/index.html", "hello over TCP\n", nil); err != nil {
			return err
		}
		if _, err := sb.Commands.Start(ctx, "exec python3 -m http.server 8000 -d site", nil); err != nil {
			return err
		}
		if err := sb.WaitPort(ctx, 8000); err != nil { // it still starts
			return err
		}
		forwarding, err := sb.Forward(ctx, "127.0.0.1:0", 8000, nil)
		if err != nil {
			return err
		}
		defer forwarding.Close()
		response, err := http.Get("http://" + forwarding.Addr().String()) // or a program that takes an address
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(os.Stdout, response.Body)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: hello over TCP
}
