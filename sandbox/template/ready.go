package template

import (
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/shell"
)

// ReadyCommand is a shell command whose success means that a sandbox is ready. It is repeated
// until it succeeds. Any command is allowed.
type ReadyCommand string

// WaitPort waits until a server listens on a port.
func WaitPort(port int) ReadyCommand {
	return ReadyCommand(fmt.Sprintf(`[ -n "$(ss -Htuln sport = :%d)" ]`, port))
}

// WaitURL waits until a request for url returns the status, such as 200.
func WaitURL(url string, status int) ReadyCommand {
	return ReadyCommand(fmt.Sprintf(`curl -s -o /dev/null -w "%%{http_code}" %s | grep -q "%d"`, shell.Quote(url), status))
}

// WaitProcess waits until a process of that name runs.
func WaitProcess(name string) ReadyCommand {
	return ReadyCommand("pgrep " + shell.Quote(name) + " > /dev/null")
}

// WaitFile waits until a file exists.
func WaitFile(path string) ReadyCommand { return ReadyCommand("[ -f " + shell.Quote(path) + " ]") }

// WaitFor waits for d, rounded down to whole seconds, but for at least one second.
func WaitFor(d time.Duration) ReadyCommand {
	return ReadyCommand(fmt.Sprintf("sleep %d", max(1, int64(d/time.Second))))
}
