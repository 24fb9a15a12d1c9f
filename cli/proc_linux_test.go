package cli

import (
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestProcAttach(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)

	t.Run("Ctrl-C leaves", func(t *testing.T) {
		t.Parallel()
		process, err := sb.Commands.Start(t.Context(), "while read -r a; do echo $((a+1)); done; exit 5", &sandbox.CommandParams{Input: true})
		must.Do(t, err)
		pid := strconv.Itoa(process.PID())
		p := atTerminal(t, cloud, "proc", "attach", sb.ID(), pid)
		p.sees("process " + pid + "; Ctrl-C leaves it running")
		p.types("1233\r")
		p.sees("1234")
		p.types("\x03")
		p.ends(130)
		p.sees("process " + pid + " goes on in sandbox " + sb.ID())

		p = atTerminal(t, cloud, "proc", "attach", sb.ID(), pid)
		p.sees("process ")
		p.types("4320\r")
		p.sees("4321")
		p.types("\x04") // the end of the input
		p.ends(5)
	})
	t.Run("output of before", func(t *testing.T) {
		t.Parallel()
		process, err := sb.Commands.Start(t.Context(), "echo first; echo second; read a; echo $a", &sandbox.CommandParams{Input: true})
		must.Do(t, err)
		pid := strconv.Itoa(process.PID())
		p := atTerminal(t, cloud, "proc", "attach", "--from", "6", sb.ID(), pid)
		p.sees("second")
		p.types("\x03")
		p.sees("--from 13 goes on with its output")
		p.ends(130)
		must.Do(t, process.SendInput(t.Context(), []byte("third\n")))
		if _, err := process.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		p = atTerminal(t, cloud, "proc", "attach", "--from", "0", sb.ID(), pid)
		p.sees("first\r\nsecond\r\nthird\r\n")
		p.ends(0)
		p = atTerminal(t, cloud, "proc", "attach", "--from", "20", sb.ID(), pid)
		p.sees("byte 20 of the output is yet to come: the process has written 19 bytes")
		p.ends(125)
	})
	t.Run("a process without input", func(t *testing.T) {
		t.Parallel()
		process, err := sb.Commands.Start(t.Context(), "until [ -e end ]; do sleep 0.01; done; exit 3", nil)
		must.Do(t, err)
		p := atTerminal(t, cloud, "proc", "attach", sb.ID(), strconv.Itoa(process.PID()))
		p.sees("leaves it running")
		p.types("text\r")
		p.sees("the process takes no input: ")
		must.Do(t, sb.Files.Write(t.Context(), "end", nil, nil))
		p.ends(3)
	})
	t.Run("a terminal", func(t *testing.T) {
		t.Parallel()
		terminal, err := sb.PTY.Open(t.Context(), &sandbox.PTYParams{Command: "read a; echo $a; read a"})
		must.Do(t, err)
		defer terminal.Close()
		p := atTerminal(t, cloud, "proc", "attach", sb.ID(), strconv.Itoa(terminal.PID()))
		p.sees("leaves it running")
		_, err = terminal.Write([]byte("text\r"))
		must.Do(t, err)
		p.ends(125)
		p.sees("e2bctl connect --pid shows it")
	})
	t.Run("the sandbox dies", func(t *testing.T) {
		t.Parallel()
		mortal := cloud.Create(t)
		process, err := mortal.Commands.Start(t.Context(), "sleep 1000", nil)
		must.Do(t, err)
		p := atTerminal(t, cloud, "proc", "attach", mortal.ID(), strconv.Itoa(process.PID()))
		p.sees("leaves it running")
		must.Do(t, mortal.Kill(t.Context()))
		p.ends(137)
		if strings.Contains(p.shown(), "goes on") {
			t.Errorf("the screen says that the process goes on: %q", p.shown())
		}
	})
}
