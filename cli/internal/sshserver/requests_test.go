package sshserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestRequestsOfSessions checks which requests are granted before and after the program of a session has started, and
// which of them start a program.
func TestRequestsOfSessions(t *testing.T) {
	t.Parallel()
	text := func(s string) []byte { return ssh.Marshal(struct{ Text string }{s}) }
	pty := func(term string) []byte { return ssh.Marshal(terminalRequest{Term: term, Cols: 80, Rows: 24}) }
	for name, tt := range map[string]struct {
		kind          string
		payload       []byte
		before, after bool // it is granted before and after the start
		starts        bool
	}{
		"a variable":              {"env", ssh.Marshal(struct{ Name, Value string }{"A", "1"}), true, true, false},
		"a damaged variable":      {"env", []byte("x"), false, false, false},
		"a terminal":              {"pty-req", pty("xterm"), true, false, false},
		"a long terminal":         {"pty-req", pty(strings.Repeat("x", maxUser)), true, false, false},
		"a longer terminal":       {"pty-req", pty(strings.Repeat("x", maxUser+1)), false, false, false},
		"a damaged terminal":      {"pty-req", []byte("x"), false, false, false},
		"a window":                {"window-change", ssh.Marshal(windowRequest{Cols: 1, Rows: 2}), false, false, false}, // there is no terminal
		"a signal":                {"signal", text("TERM"), false, false, false},                                        // there is no process
		"a damaged signal":        {"signal", []byte("x"), false, false, false},
		"a shell":                 {"shell", nil, true, false, true},
		"a command":               {"exec", text("true"), true, false, true},
		"a damaged command":       {"exec", []byte("x"), false, false, false},
		"sftp":                    {"subsystem", text("sftp"), true, false, true},
		"another subsystem":       {"subsystem", text("netconf"), false, false, false},
		"a damaged subsystem":     {"subsystem", []byte("x"), false, false, false},
		"the agent of the client": {"auth-agent-req@openssh.com", nil, false, false, false},
	} {
		for started, want := range map[bool]bool{false: tt.before, true: tt.after} {
			c := &session{server: &server{}, envs: map[string]string{}, started: started}
			run, ok := c.handle(t.Context(), &ssh.Request{Type: tt.kind, Payload: tt.payload})
			if ok != want || (run != nil) != (tt.starts && ok) {
				t.Errorf("%s, started %v: granted %v, and starts a program: %v; want %v and %v", name, started, ok, run != nil, want, tt.starts && want)
			}
			if set := c.pty != nil; set != (tt.kind == "pty-req" && ok) || set && (c.pty.Cols != 80 || c.pty.Rows != 24) {
				t.Errorf("%s, started %v: got the terminal %+v", name, started, c.pty)
			}
		}
	}
}

// ending is a channel that records the end of its program.
type ending struct {
	ssh.Channel
	stderr bytes.Buffer
	sent   string
	closed bool
}

func (e *ending) Stderr() io.ReadWriter { return &e.stderr }

func (e *ending) SendRequest(name string, wantReply bool, payload []byte) (bool, error) {
	if wantReply {
		return false, errors.ErrUnsupported
	}
	e.sent += name + " " + string(payload)
	return true, nil
}

func (e *ending) Close() error { e.closed = true; return nil }

// TestEndsOfPrograms checks how the end of a program is reported to the client.
func TestEndsOfPrograms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    exit
		err    error
		sent   string
		stderr string
		broke  int
	}{
		"success":        {exit{}, nil, "exit-status \x00\x00\x00\x00", "", 0},
		"a status":       {exit{status: 300}, nil, "exit-status \x00\x00\x01\x2c", "", 0},
		"a signal":       {exit{status: -1, signal: 15}, nil, "exit-signal \x00\x00\x00\x04TERM\x00\x00\x00\x00\x00\x00\x00\x00\x00", "", 0},
		"another signal": {exit{signal: 5}, nil, "exit-signal \x00\x00\x00\x085@e2bctl\x00\x00\x00\x00\x00\x00\x00\x00\x00", "", 0},
		"an error":       {exit{signal: 15}, io.ErrNoProgress, "exit-status \x00\x00\x00\xff", "e2bctl: message of " + io.ErrNoProgress.Error() + "\r\n", 1},
	} {
		broke, e := 0, &ending{}
		s := &server{Config: Config{Message: func(err error) string { return "message of " + err.Error() }, Broke: func() { broke++ }}}
		(&session{server: s, channel: e}).finish(tt.end, tt.err)
		if e.sent != tt.sent || e.stderr.String() != tt.stderr || !e.closed || broke != tt.broke {
			t.Errorf("%s: sent %q and %q, closed %v, looked at the sandbox %d times; want %q, %q, true and %d", name, e.sent, &e.stderr, e.closed, broke, tt.sent, tt.stderr, tt.broke)
		}
	}
}

// TestProgramsOfSftp checks the program that each request of sftp runs, as whom, and that its failure is an error.
func TestProgramsOfSftp(t *testing.T) {
	t.Parallel()
	d := &daemon{}
	f := &files{server: d.server(t), life: t.Context(), writing: map[string]*writer{}}
	set := func(flags uint32, attributes string) *sftp.Request {
		r := sftp.NewRequest("Setstat", "/f")
		r.Flags, r.Attrs = flags, []byte(attributes)
		return r
	}
	to := func(method string) *sftp.Request {
		r := sftp.NewRequest(method, "/f")
		r.Target = "/t"
		return r
	}
	const size, owner, mode, times = 1, 2, 4, 8 // of the protocol
	for name, tt := range map[string]struct {
		call func() error
		want []string
	}{
		"rename":   {func() error { return f.Filecmd(to("Rename")) }, []string{"test ! -e /t", "mv -nT -- /f /t"}},
		"rmdir":    {func() error { return f.Filecmd(to("Rmdir")) }, []string{"rmdir -- /f"}},
		"remove":   {func() error { return f.Filecmd(to("Remove")) }, []string{"rm -- /f"}},
		"mkdir":    {func() error { return f.Filecmd(to("Mkdir")) }, []string{"mkdir -- /f"}},
		"link":     {func() error { return f.Filecmd(to("Link")) }, []string{"ln -T -- /f /t"}},
		"symlink":  {func() error { return f.Filecmd(to("Symlink")) }, []string{"ln -sT -- /f /t"}},
		"replace":  {func() error { return f.PosixRename(to("PosixRename")) }, []string{"mv -fT -- /f /t"}},
		"readlink": {func() error { _, err := f.Readlink("/f"); return err }, []string{"readlink -nv -- /f"}},
		"truncate": {func() error { return f.Filecmd(set(size, "\x00\x00\x00\x01\x00\x00\x00\x07")) }, []string{"truncate -s 4294967303 -- /f"}},
		"all attributes": {
			func() error {
				return f.Filecmd(set(owner|mode|times, "\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x8d\xff\x00\x00\x00\x03\x00\x00\x00\x04"))
			},
			[]string{"chown 1:2 -- /f && chmod 6777 -- /f && touch -c -a -d @3 -- /f && touch -c -m -d @4 -- /f"},
		},
		"from a byte on": {func() error {
			r, err := f.read("/f", 9)
			must.Do(t, err)
			_, err = io.ReadAll(r)
			return errors.Join(err, r.Close())
		}, []string{"tail -c +10 -- /f"}},
		"into a file": {func() error { return f.write("/f", 9, false).end(nil) },
			[]string{"dd of=/f conv=notrunc oflag=seek_bytes seek=9 bs=128K iflag=fullblock status=none"}},
	} {
		for output, ok := range map[string]bool{"text": true, "": false} { // no output: it is refused
			d.ran, d.output = nil, output
			err := tt.call()
			want := tt.want
			if !ok {
				want = want[:1]
			}
			var ran []string
			for _, line := range d.ran {
				ran = append(ran, strings.NewReplacer("'", "", "/bin/bash -l -c ", "").Replace(line))
			}
			if (err == nil) != ok {
				t.Errorf("%s: got error %v, want none: %v", name, err, ok)
			}
			if diff := cmp.Diff(want, ran); diff != "" {
				t.Errorf("%s: programs (-want +got):\n%s", name, diff)
			}
		}
	}
	params := f.params()
	if params.User != "u" || params.Cwd != "/" || params.Envs["LC_ALL"] != "C" {
		t.Errorf("programs run with %+v", params)
	}
}

// TestChangesOfAWrittenFile checks that the changes of a file that is being written wait for its end, but not its length.
func TestChangesOfAWrittenFile(t *testing.T) {
	t.Parallel()
	d := &daemon{output: "text"}
	f := &files{server: d.server(t), life: t.Context(), writing: map[string]*writer{}}
	w := &writer{}
	f.writing["/f"] = w
	r := sftp.NewRequest("Setstat", "/f")
	r.Flags, r.Attrs = 1|4, []byte("\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x81\xff") // the length and the permissions
	must.Do(t, f.Filecmd(r))
	if len(d.ran) != 1 || !strings.Contains(d.ran[0], "truncate") || len(w.after) != 1 {
		t.Fatalf("ran %q, and %d changes wait; want the length, and one that waits", d.ran, len(w.after))
	}
	must.Do(t, w.close(context.WithoutCancel(t.Context())))
	if len(d.ran) != 2 || !strings.Contains(d.ran[1], "chmod 0777") || strings.Contains(d.ran[1], "truncate") {
		t.Errorf("ran %q, want the permissions at the end", d.ran)
	}
	if !f.mu.TryLock() {
		t.Error("a change keeps the lock")
	}
}
