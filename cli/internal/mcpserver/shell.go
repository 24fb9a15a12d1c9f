package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/sandbox"
)

// shell is a bash in a sandbox that runs one command after the other, so that its directory,
// variables and background jobs persist. The output of bash does not show where a command ends, so
// shell makes bash print a line with an unguessable word after each command.
type shell struct {
	command *sandbox.Command
	ended   chan struct{} // closed when bash has ended

	mu      sync.Mutex
	running *shellCall   // the command that is running; nil between commands
	between *clip.Output // the output of background jobs between commands
}

// shellCall is a command that bash runs.
type shellCall struct {
	mark  []byte // the beginning of the line that bash prints at the end of the command
	out   *stream
	line  []byte // received bytes that may belong to the line at the end of the command
	found bool   // the mark has arrived; the field line contains the bytes received after it
	ended bool   // the whole line at the end of the command has arrived
	done  chan shellStatus
}

type shellStatus struct {
	code int
	dir  string
}

// startShell starts bash as root, the user that also runs code. Bash starts in dir. If dir is "",
// it starts in the home directory of the sandbox's user.
func startShell(ctx context.Context, sb *sandbox.Sandbox, dir string) (*shell, error) {
	home, err := sb.Files.Stat(ctx, ".", nil)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = home.Path
	}
	s := &shell{ended: make(chan struct{}), between: clip.NewOutput(maxText)}
	s.command, err = sb.Commands.Start(context.WithoutCancel(ctx), "exec bash --norc --noprofile 2>&1", &sandbox.CommandParams{
		User: "root", Cwd: dir, Input: true, Stdout: s, Stderr: s, MaxOutputBytes: -1,
		Envs: map[string]string{"HOME": home.Path, "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"},
	})
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_, _ = s.command.Wait(context.Background()) // that it ended is all that matters; it ends with the sandbox's handle
	}()
	return s, nil
}

var errShellEnded = errors.New("the shell has ended")

// run runs a command, and adds its output to out.
func (s *shell) run(ctx context.Context, line string, out *stream) (shellStatus, error) {
	word := rand.Text()
	call := &shellCall{mark: []byte("\n" + word + " "), out: out, done: make(chan shellStatus, 1)}
	s.mu.Lock()
	s.running = call
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running = nil
		s.mu.Unlock()
	}()
	// The command has no input: the shell's own would be the commands that follow. Its redirections end with it, so that
	// neither "exec >file" nor a function of the name of a builtin hides the line at the end.
	script := fmt.Sprintf("builtin eval %s </dev/null >&2 2>&1; builtin printf '\\n%%s %%d %%.4000s\\n' %s $? \"${PWD+${PWD//[$'\\n']/?}}\" >&2\n", sandbox.Quote(line), word)
	if err := s.command.SendInput(ctx, []byte(script)); err != nil {
		return shellStatus{}, err
	}
	select {
	case status := <-call.done:
		return status, nil
	case <-s.ended:
		return shellStatus{}, errShellEnded
	case <-ctx.Done():
		return shellStatus{}, context.Cause(ctx)
	}
}

// Write receives the output of bash.
func (s *shell) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return s.between.Write(p)
	}
	if rest := s.running.take(p); len(rest) > 0 {
		_, _ = s.between.Write(rest) // it never fails
	}
	return len(p), nil
}

// takeBetween returns the output of background jobs between commands, and clears it.
func (s *shell) takeBetween() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.between.Text()
	s.between = clip.NewOutput(maxText)
	return text
}

// maxEndLine bounds the line at the end of a command. Bash itself writes shorter lines, but code
// that has found out the unguessable word may write a longer one.
const maxEndLine = 8 << 10

// take receives output of bash, up to and including the line that bash prints at the end of the
// command. It returns the output after that line.
func (c *shellCall) take(p []byte) []byte {
	if c.ended {
		return p
	}
	c.line = append(c.line, p...)
	if !c.found {
		at := bytes.Index(c.line, c.mark)
		if at < 0 {
			sure := len(c.line) - overlap(c.line, c.mark)
			_, _ = c.out.Write(c.line[:sure]) // it never fails
			c.line = append(c.line[:0], c.line[sure:]...)
			return nil
		}
		_, _ = c.out.Write(c.line[:at])
		c.line, c.found = c.line[at+len(c.mark):], true
	}
	text, rest, ok := bytes.Cut(c.line, []byte("\n"))
	if !ok && len(c.line) <= maxEndLine {
		return nil
	}
	code, dir, _ := strings.Cut(string(text), " ")
	status := shellStatus{dir: dir}
	status.code, _ = strconv.Atoi(code) // bash wrote a number
	c.done <- status                    // it has room for one
	c.line, c.ended = nil, true
	return rest
}

// overlap returns the length of the longest suffix of text that is a prefix of mark.
func overlap(text, mark []byte) int {
	for n := min(len(mark)-1, len(text)); n > 0; n-- {
		if bytes.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}

// stop ends bash and the foreground command.
func (s *shell) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	err := s.command.Kill(ctx)
	if err == nil || errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	return err
}
