package mcpserver

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"os"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// A session has one sandbox: variables of Python, the directory of the shell and files stay.
func TestSession(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			c := s.connect(t, version, nil)
			c.works(t, "run_python", args{"code": "x = 41"})
			if a := c.works(t, "run_python", args{"code": "print('hello')\nx + 1"}); a.text != "hello\n42" {
				t.Errorf("got %q, want what was printed and the value", a.text)
			}
			c.works(t, "bash", args{"command": "mkdir -p deep/er && cd deep/er && export WORD=kept"})
			if a := c.works(t, "bash", args{"command": `pwd; echo "$WORD"; false`}); a.text != "/home/user/deep/er\nkept" || !strings.Contains(a.notes, "exit status 1") {
				t.Errorf("got %q with %q, want the directory, the variable and the status", a.text, a.notes)
			}
			c.works(t, "write_file", args{"path": "deep/er/a.txt", "content": "one\ntwo\ntwo\n"})
			if a := c.works(t, "bash", args{"command": "cat a.txt"}); a.text != "one\ntwo\ntwo" {
				t.Errorf("got %q, want what was written", a.text)
			}
		})
	}
}

// Code and commands are the same user, so that each can change the other's files.
func TestToolsShareFiles(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).connect(t, roundTrips, nil)
	c.works(t, "run_python", args{"code": "open('by-python', 'w').write('1\\n')"})
	c.works(t, "bash", args{"command": "echo 2 >>~/by-python && echo 1 >~/by-bash"})
	c.works(t, "run_python", args{"code": "open('by-bash', 'a').write('2\\n')"})
	c.works(t, "edit_file", args{"path": "by-bash", "old_str": "2", "new_str": "3"})
	c.works(t, "run_python", args{"code": "open('by-bash', 'a').write('4\\n')"})
	for path, want := range map[string]string{"by-python": "1\n2\n", "by-bash": "1\n3\n4\n"} {
		if a := c.works(t, "read_file", args{"path": path}); a.text != strings.TrimSuffix(want, "\n") {
			t.Errorf("%s: got %q, want %q", path, a.text, want)
		}
	}
}

func TestErrorsOfCode(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).connect(t, roundTrips, nil)
	a := c.fails(t, "run_python", args{"code": "print('before')\n1/0"}, "the code raised ZeroDivisionError")
	if !strings.HasPrefix(a.text, "before\n") || !strings.Contains(a.text, "division by zero") || strings.ContainsRune(a.text, '\x1b') {
		t.Errorf("got %q, want the output and the traceback, without colours", a.text)
	}
	a = c.fails(t, "run_python", args{"code": "y = 7\nprint('started')\nwhile True: pass", "timeout_seconds": 2}, "interrupted after 2s")
	if !strings.Contains(a.text, "started") {
		t.Errorf("got %q, want the output until the interrupt", a.text)
	}
	if a := c.works(t, "run_python", args{"code": "y"}); a.text != "7" {
		t.Errorf("got %q after an interrupt, want the variable", a.text)
	}
	c.fails(t, "run_python", args{"code": "1", "timeout_seconds": 3601}, "want 1 to 3600")
	c.fails(t, "run_python", args{"code": "1", "timeout_seconds": -1}, "want 1 to 3600")
	c.fails(t, "run_python", args{"code": "1", "sandbox": "i-am-not-yours-00000"}, "no such sandbox of this server")
}

// A command that takes too long ends the shell. The next one runs in the same directory.
func TestCommandsEnd(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).connect(t, roundTrips, nil)
	c.works(t, "bash", args{"command": "mkdir work; cd work; sleep 600 &"})
	a := c.fails(t, "bash", args{"command": "echo begun; sleep 600", "timeout_seconds": 1}, "stopped after 1s")
	if a.text != "begun" {
		t.Errorf("got %q, want the output until the end", a.text)
	}
	if a := c.works(t, "bash", args{"command": "pwd"}); a.text != "/home/user/work" {
		t.Errorf("got the directory %q, want that of the shell before", a.text)
	}
	c.fails(t, "bash", args{"command": "exit 3"}, "the shell has ended")
	if a := c.works(t, "bash", args{"command": "pwd; read line; echo \"[$line]\""}); a.text != "/home/user/work\n[]" {
		t.Errorf("got %q, want the directory and no input", a.text)
	}
	if a := c.works(t, "bash", args{"command": "printf 'no end of line'"}); a.text != "no end of line" {
		t.Errorf("got %q", a.text)
	}
	c.works(t, "bash", args{"command": "(sleep 0.2; echo from the background) &"})
	for range 50 {
		a = c.works(t, "bash", args{"command": "sleep 0.1"})
		if strings.Contains(a.text, "from the background") {
			break
		}
	}
	if !strings.Contains(a.text, "from the background") {
		t.Error("the output of a background job is in no answer")
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).connect(t, roundTrips, nil)
	c.works(t, "write_file", args{"path": "a/b.txt", "content": "one\ntwo\ntwo\n"})
	c.fails(t, "edit_file", args{"path": "a/b.txt", "old_str": "two", "new_str": "2"}, "occurs 2 times")
	c.fails(t, "edit_file", args{"path": "a/b.txt", "old_str": "three", "new_str": "3"}, "does not occur")
	c.fails(t, "edit_file", args{"path": "a/b.txt", "old_str": "", "new_str": "3"}, "nothing to replace")
	if a := c.works(t, "read_file", args{"path": "a/b.txt"}); a.text != "one\ntwo\ntwo" {
		t.Errorf("got %q after edits that were refused, want the file as before", a.text)
	}
	c.works(t, "edit_file", args{"path": "a/b.txt", "old_str": "two", "new_str": "2", "replace_all": true})
	if a := c.works(t, "read_file", args{"path": "a/b.txt", "offset": 2, "limit": 1}); a.text != "2" || !strings.Contains(a.notes, "lines 2 to 2") || !strings.Contains(a.notes, "offset 3") {
		t.Errorf("got %q with %q, want the second line and the next offset", a.text, a.notes)
	}
	c.fails(t, "read_file", args{"path": "a/b.txt", "offset": 9}, "has 3 lines")
	c.fails(t, "read_file", args{"path": "missing"}, "does not exist")
	c.works(t, "bash", args{"command": "head -c 3000 /dev/zero >zeros; head -c 5000 /dev/zero | tr '\\0' x >long; seq 100000 >many; touch empty"})
	c.fails(t, "read_file", args{"path": "zeros"}, "is not text")
	if a := c.works(t, "read_file", args{"path": "long"}); len(a.text) > maxLine+len("…\n") || !strings.Contains(a.notes, "longer than 2000 bytes") {
		t.Errorf("got %d bytes with %q, want the beginning of the line", len(a.text), a.notes)
	}
	if a := c.works(t, "read_file", args{"path": "many"}); !strings.Contains(a.notes, "offset 2001") {
		t.Errorf("got %q, want the next offset", a.notes)
	}
	if a := c.works(t, "read_file", args{"path": "empty"}); !strings.Contains(a.notes, "empty") {
		t.Errorf("got %q for an empty file", a.notes)
	}
}

// A plot is a picture that models take, whatever its size; the file itself is at a link.
func TestPictures(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).connect(t, roundTrips, nil)
	a := c.works(t, "run_python", args{"code": "import matplotlib.pyplot as plt\nplt.figure(figsize=(30, 20), dpi=100)\nplt.plot([1, 2, 4])\nprint('drawn')\nplt.show()"})
	if a.text != "drawn" || len(a.pictures) != 1 || len(a.links) != 1 {
		t.Fatalf("got %q, %d pictures and %d links, want the text, one picture and its file", a.text, len(a.pictures), len(a.links))
	}
	shown, _, err := image.DecodeConfig(bytes.NewReader(a.pictures[0].Data))
	must.Do(t, err)
	if max(shown.Width, shown.Height) != maxEdge || len(a.pictures[0].Data) > maxPicture {
		t.Errorf("got a picture of %dx%d in %d bytes", shown.Width, shown.Height, len(a.pictures[0].Data))
	}
	whole, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: a.links[0].URI})
	must.Do(t, err)
	original, _, err := image.DecodeConfig(bytes.NewReader(whole.Contents[0].Blob))
	must.Do(t, err)
	if original.Width <= maxEdge {
		t.Errorf("the file at the link is %d pixels wide, want the original", original.Width)
	}
	if a := c.works(t, "run_python", args{"code": "plt.figure(figsize=(3, 2), dpi=100)\nplt.plot([1, 2])\nplt.show()"}); len(a.pictures) != 1 || len(a.links) != 0 {
		t.Errorf("got %d pictures and %d links for a small figure, want the picture alone", len(a.pictures), len(a.links))
	}
	c.works(t, "run_python", args{"code": "plt.figure(figsize=(3, 2)).savefig('small.png')"})
	if a := c.works(t, "read_file", args{"path": "small.png"}); len(a.pictures) != 1 {
		t.Errorf("got %d pictures of a PNG file", len(a.pictures))
	}
}

// Tools that answer with pictures have no output schema: clients then leave pictures out.
func TestNoOutputSchema(t *testing.T) {
	t.Parallel()
	c := serve(t, func(config *Config) { config.Publish = nil }).connect(t, roundTrips, nil)
	list, err := c.ListTools(t.Context(), nil)
	must.Do(t, err)
	if len(list.Tools) != len(Tools())-2 {
		t.Errorf("got %d tools, want all but %s and %s", len(list.Tools), publishName, searchName)
	}
	for _, tool := range list.Tools {
		if tool.OutputSchema != nil || tool.Annotations == nil || tool.Description == "" {
			t.Errorf("%s: want annotations, a description, and no output schema", tool.Name)
		}
	}
}

// However much code prints, the answer fits a client, and the server's memory does not grow with it.
func TestMuchOutput(t *testing.T) {
	t.Parallel()
	megabytes := 50
	if os.Getenv("SOAK") != "" {
		megabytes = 1000
	}
	c := serve(t, nil).connect(t, roundTrips, nil)
	for name, arguments := range map[string]args{
		"bash":       {"command": fmt.Sprintf("echo first; yes | head -c %d; echo last", megabytes*1_000_000)},
		"run_python": {"code": fmt.Sprintf("print('first')\nfor i in range(%d): print('y' * 1000000)\nprint('last')", megabytes)},
	} {
		a := c.works(t, name, arguments)
		if len(a.text) > maxText+200 || !strings.HasPrefix(a.text, "first\n") || !strings.HasSuffix(a.text, "last") {
			t.Errorf("%s: got %d bytes from %.10q, want the head and the tail", name, len(a.text), a.text)
		}
		if len(a.links) != 1 {
			t.Fatalf("%s: got %d links, want one to the whole", name, len(a.links))
		}
		whole, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: a.links[0].URI})
		must.Do(t, err)
		if got := len(whole.Contents[0].Text); got != maxKept {
			t.Errorf("%s: the link has %d bytes, want the first %d", name, got, maxKept)
		}
	}
	_, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: outputPrefix + "guess/output.txt"})
	if err == nil {
		t.Error("a link that no answer had was read")
	}
}

// TestCancelledCall checks that a cancelled call ends its own work, and leaves the sandbox to others.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).connect(t, roundTrips, nil)
	c.works(t, "bash", args{"command": "pwd"}) // makes the sandbox
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "run_python", Arguments: args{"code": "kept = 1\nimport time\nopen('begun', 'w').close()\ntime.sleep(600)"}})
		ended <- err
	}()
	c.works(t, "bash", args{"command": "until [ -e begun ]; do sleep 0.01; done"})
	cancel()
	must.Is(t, <-ended, context.Canceled)
	if a := c.works(t, "run_python", args{"code": "kept"}); a.text != "1" {
		t.Errorf("got %q, want the variable of the call that was cancelled", a.text)
	}
}
