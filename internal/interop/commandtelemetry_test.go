package interop

import (
	"bufio"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// driveTelemetry makes the official command show the log and the metrics of a sandbox, and
// follow both until it ends.
func (o official) driveTelemetry(t *testing.T) {
	id := o.create(t)
	o.must(t, "sandbox", "exec", id, "echo", "marked")
	t.Run("logs", func(t *testing.T) {
		for flags, want := range map[string][]string{
			"":                       {"lifecycle sandbox created", "process process started", "process process ended"},
			"--loggers lifecycle":    {"lifecycle sandbox created"},
			"--loggers kernel,shell": nil,
			"--level ERROR":          nil,
		} {
			var got []string
			for _, e := range o.logs(t, id, strings.Fields(flags)...) {
				got = append(got, e.Logger+" "+e.Message)
				if !strings.EqualFold(strings.TrimSpace(e.Level), "info") {
					t.Errorf("%s: got the level %q of %q, want info", flags, e.Level, e.Message)
				}
			}
			if len(want) == 0 && len(got) > 0 {
				t.Errorf("%s: got %q, want nothing", flags, got)
			}
			for _, one := range want {
				if !strings.Contains(strings.Join(got, "\n"), one) {
					t.Errorf("%s: got %q, want %q among them", flags, got, one)
				}
			}
		}
		if got := o.must(t, "sandbox", "logs", id); !strings.Contains(got, "Logs for sandbox") || !strings.Contains(got, "echo marked") {
			t.Errorf("for people it prints %q, want the command", got)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		got := o.must(t, "sandbox", "metrics", "--format", "json", id)
		line, _, _ := strings.Cut(strings.TrimSpace(got), "\n")
		var m struct{ CPUCount, MemUsed, MemTotal, DiskTotal float64 }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("it prints %q: %v", got, err)
		}
		if m.CPUCount < 1 || m.MemUsed <= 0 || m.MemTotal < m.MemUsed || m.DiskTotal <= 0 {
			t.Errorf("got %+v, want what a sandbox uses", m)
		}
		if got := o.must(t, "sandbox", "metrics", id); !strings.Contains(got, "Memory") {
			t.Errorf("for people it prints %q, want the memory", got)
		}
	})
	t.Run("followed logs", func(t *testing.T) {
		command := o.command(t, "sandbox", "logs", "--follow", id)
		stdout, err := command.StdoutPipe()
		must.Do(t, err)
		must.Do(t, command.Start())
		begun, printed := make(chan struct{}), make(chan string, 1)
		begin := sync.OnceFunc(func() { close(begun) })
		go func() {
			var all strings.Builder
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				if all.WriteString(lines.Text() + "\n"); strings.Contains(lines.Text(), "echo marked") {
					begin()
				}
			}
			printed <- all.String()
		}()
		patience.Receive(t, "the log so far", begun) // the command shows nothing of a sandbox that is gone by then
		o.must(t, "sandbox", "exec", id, "echo", "followed")
		o.must(t, "sandbox", "kill", id)
		got := patience.Receive(t, "the end of the log", printed)
		if err := command.Wait(); err != nil {
			t.Errorf("it ended with %v, want that the sandbox is closed", err)
		}
		if !strings.Contains(got, "Stopped printing logs") {
			t.Errorf("it printed %q, want the end of the log", got)
		}
	})
}

// loggedLine is a line of a log as the command prints it.
type loggedLine struct{ Timestamp, Level, Logger, Message string }

func (o official) logs(t *testing.T, id string, flags ...string) (lines []loggedLine) {
	t.Helper()
	for line := range strings.Lines(o.must(t, append([]string{"sandbox", "logs", "--format", "json", id}, flags...)...)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var l loggedLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("it prints %q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}
