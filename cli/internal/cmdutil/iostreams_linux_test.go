package cmdutil

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStreamsOfTheProcess checks what is known of each stream of the process if it is a terminal, a file or no data.
func TestStreamsOfTheProcess(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "")
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must.Do(t, err)
	defer terminal.Close()
	must.Do(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 77}))
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must.Do(t, err)
	defer file.Close()
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer null.Close()
	in, out, errs := os.Stdin, os.Stdout, os.Stderr
	defer func() { os.Stdin, os.Stdout, os.Stderr = in, out, errs }()
	type known struct {
		InIsTerminal, OutIsTerminal, ErrIsTerminal, InIsData, ErrIsFile bool
		OutWidth, ErrWidth                                              int
	}
	for name, tt := range map[string]struct {
		in, out, err *os.File
		want         known
	}{
		"files":           {file, file, file, known{InIsData: true, ErrIsFile: true}},
		"no data":         {null, null, null, known{}},
		"a terminal's in": {terminal, file, null, known{InIsTerminal: true}},
		"out":             {null, terminal, null, known{OutIsTerminal: true, OutWidth: 77}},
		"err":             {null, null, terminal, known{ErrIsTerminal: true, ErrWidth: 77}},
	} {
		os.Stdin, os.Stdout, os.Stderr = tt.in, tt.out, tt.err
		s := SystemStreams()
		os.Stdin, os.Stdout, os.Stderr = in, out, errs
		got := known{s.InIsTerminal, s.OutIsTerminal, s.ErrIsTerminal, s.InIsData, s.ErrIsFile, s.OutWidth, s.ErrWidth}
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
		if s.In != tt.in || s.RawErr != tt.err || s.Err != tt.err {
			t.Errorf("%s: got other streams", name)
		}
		if pipe, ok := s.Out.(*pipeWriter); !ok || pipe.file != tt.out {
			t.Errorf("%s: got the output %v", name, s.Out)
		}
	}
}
