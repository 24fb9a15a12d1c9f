package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/sshserver"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestProxyCommand checks which flags the command has that ssh runs.
func TestProxyCommand(t *testing.T) {
	here, err := os.Getwd()
	must.Do(t, err)
	program, err := os.Executable()
	must.Do(t, err)
	for args, want := range map[string]struct {
		isLocal bool
		words   []string
	}{
		"":                              {false, nil},
		"--local":                       {true, []string{"--local"}},
		"--local=false":                 {false, []string{"--local=false"}},
		"--api-url=http://a --domain=b": {false, []string{"--api-url", "http://a", "--domain", "b"}},
		"--env-file=x":                  {false, []string{"--env-file", here + "/x"}},
		"--env-file=":                   {false, []string{"--env-file", ""}},
		"--no-env-file":                 {false, []string{"--no-env-file=true"}},
		"--quiet":                       {true, []string{"--local"}}, // as the environment says
	} {
		f := cmdutil.NewFactory(cmdutil.NewIOStreams(nil, nil, nil), nil)
		cmd := &cobra.Command{}
		f.AddFlags(cmd)
		cmdutil.AddLocalFlag(cmd, new(bool))
		must.Do(t, cmd.ParseFlags(strings.Fields(args)))
		words, err := proxyCommand(cmd.Flags(), want.isLocal)
		if diff := cmp.Diff(append([]string{program, "ssh-proxy"}, want.words...), words); diff != "" || err != nil {
			t.Errorf("%s: got error %v, words (-want +got):\n%s", args, err, diff)
		}
	}
}

// TestSSHConfig checks the configuration of ssh, and the texts that it cannot contain.
func TestSSHConfig(t *testing.T) {
	t.Parallel()
	keys := sshserver.Keys{ClientFile: "/k/100%/id", KnownHosts: "/k/known hosts"}
	got, err := sshConfig([]string{"e2b-a", "e2b-b"}, "user", []string{"/bin/e2b ctl", "ssh-proxy", "--domain", "100%"}, keys)
	want := `Host e2b-a e2b-b
  User "user"
  ProxyCommand '/bin/e2b ctl' ssh-proxy --domain 100%% '%n'
  HostKeyAlias e2bctl
  IdentityFile "/k/100%%/id"
  IdentitiesOnly yes
  UserKnownHostsFile "/k/known hosts"
  StrictHostKeyChecking yes
`
	must.Do(t, err)
	for i, line := range strings.Split(got, "\n") {
		if wanted := strings.Split(want, "\n")[i]; line != wanted && strings.ReplaceAll(line, "'", "") != strings.ReplaceAll(wanted, "'", "") {
			t.Errorf("line %d: got %s, want %s", i, line, wanted)
		}
	}
	for _, bad := range []string{"a\"b", "a\nb", "a\rb", "a\x00b", "${HOME}"} {
		for _, tt := range []struct {
			host, user, word string
			keys             sshserver.Keys
		}{{host: bad}, {user: bad}, {word: bad}, {keys: sshserver.Keys{ClientFile: bad}}, {keys: sshserver.Keys{KnownHosts: bad}}} {
			if got, err := sshConfig([]string{tt.host}, tt.user, []string{tt.word}, tt.keys); err == nil {
				t.Errorf("%q: got %s", bad, got)
			}
		}
	}
}

// TestPrintedSSHConfig checks the hosts and the keys of the configuration that is printed, and that nothing is printed
// without all of them.
func TestPrintedSSHConfig(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, known := strings.CutPrefix(r.URL.Path, "/sandboxes/short-i")
		if !known {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"sandboxID":"i%s","templateID":"t","state":"running"}`, id)
	}))
	defer server.Close()
	t.Setenv("E2B_API_KEY", "e2b_00")
	for args, want := range map[string]struct {
		noState bool // the state directory cannot be made
		full    bool // the disk is full
		host    string
		user    string
		says    string // the error
	}{
		"":                          {host: "e2b-*", user: "user"},
		"short-i1":                  {host: "e2b-i1", user: "user"},
		"-u root short-i2 short-i1": {host: "e2b-i2 e2b-i1", user: "root"},
		"short-i1 short-i2 -o json": {host: "e2b-i1 e2b-i2", user: "user"},
		"short-i1 other":            {says: "other"},
		"-u root":                   {noState: true, says: "finding a directory for the keys of ssh: "},
		"-o json short-i3":          {full: true, says: syscall.ENOSPC.Error()},
		"short-i3":                  {full: true, says: syscall.ENOSPC.Error()},
		"-o json -u a\"b short-i3":  {says: "a configuration of ssh cannot contain "},
	} {
		dir := t.TempDir()
		if want.noState {
			dir = filepath.Join(dir, "file")
			must.Do(t, os.WriteFile(dir, nil, 0o600))
		}
		for _, name := range []string{"HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"} {
			t.Setenv(name, dir)
		}
		var out bytes.Buffer
		ios := cmdutil.NewIOStreams(nil, &out, io.Discard)
		if want.full {
			ios.Out = failingOutput{syscall.ENOSPC}
		}
		before := goleak.IgnoreCurrent()
		err := cmdtest.Execute(t, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdSSHConfig(f)} },
			append([]string{"--api-url", server.URL, "--no-env-file", "ssh-config"}, strings.Fields(args)...)...)
		if leaks := goleak.Find(before); leaks != nil {
			t.Errorf("%s: a connection stays: %v", args, leaks)
		}
		if want.says != "" {
			if err == nil || !strings.Contains(err.Error(), want.says) || out.Len() > 0 {
				t.Errorf("%s: printed %s and got error %v, want %s", args, &out, err, want.says)
			}
			continue
		}
		must.Do(t, err)
		config, view := out.String(), sshConfigView{}
		if strings.Contains(args, "json") {
			must.Do(t, json.Unmarshal(out.Bytes(), &view))
			config = view.Config
			if _, err := os.Stat(view.IdentityFile); err != nil || strings.Join(view.Hosts, " ") != want.host || !strings.Contains(config, view.IdentityFile) {
				t.Errorf("%s: got %+v, and of its key %v", args, view, err)
			}
		}
		if !strings.HasPrefix(config, "Host "+want.host+"\n  User \""+want.user+"\"\n  ProxyCommand ") || !strings.Contains(config, "ssh-proxy --api-url "+server.URL+" '--no-env-file=true' '%n'\n") {
			t.Errorf("%s: got %s, want the hosts %s and the user %s", args, config, want.host, want.user)
		}
	}
}

// TestForwardedPorts checks the forms of ports, and the lines that are printed about them.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]portPair{"1": {0, 1}, "65535": {0, 65535}, "8080:3000": {8080, 3000}, ":3000": {0, 3000}, "0:3000": {0, 3000}, "": {}, "0": {}, "65536": {}, "1:": {}, "65536:1": {}, "a:1": {}, "1:2:3": {}} {
		got, err := parsePorts(text)
		if want.remote == 0 != (err != nil) {
			t.Errorf("%q: got error %v", text, err)
		}
		if !strings.Contains(text, ":") && want.remote > 0 {
			want.local = got.local
		}
		if err == nil && got != want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
	if got, err := parsePorts("3000"); err != nil || got != (portPair{3000, 3000}) {
		t.Errorf("one number: got %+v and error %v, want the same port on both sides", got, err)
	}
	views := []forwardView{{"127.0.0.1:8080", 3000}, {"127.0.0.1:9", 1}}
	for _, tt := range []struct {
		opts      portForwardOptions
		out, errs string
	}{
		{portForwardOptions{Address: "127.0.0.1", ID: "i1"}, "127.0.0.1:8080 leads to port 3000 of i1\n127.0.0.1:9 leads to port 1 of i1\n", ""},
		{portForwardOptions{Address: "localhost", Quiet: true}, "127.0.0.1:8080\n127.0.0.1:9\n", ""},
		{portForwardOptions{Address: "0.0.0.0", JSON: true}, `[{"address":"127.0.0.1:8080","port":3000},{"address":"127.0.0.1:9","port":1}]` + "\n", "Whoever reaches 0.0.0.0 reaches these ports of the sandbox.\n"},
		{portForwardOptions{Address: "::", Quiet: true}, "127.0.0.1:8080\n127.0.0.1:9\n", ""},
	} {
		var out, errs bytes.Buffer
		tt.opts.IO = cmdutil.NewIOStreams(nil, &out, &errs)
		must.Do(t, tt.opts.ready(views))
		if out.String() != tt.out || errs.String() != tt.errs {
			t.Errorf("%+v: got %q and %q, want %q and %q", tt.opts, &out, &errs, tt.out, tt.errs)
		}
	}
	gone := &sandbox.GoneError{ID: "i1", State: sandbox.GoneKilled, Reason: "why"}
	if got, ok := errors.AsType[*sandbox.GoneError](ended(gone)); !ok || got.ID != gone.ID || got.State != gone.State || got.Reason != gone.Reason {
		t.Errorf("got %+v", got)
	}
	if other := errors.New("other"); !errors.Is(ended(other), other) {
		t.Error("another error was changed")
	}
	if _, err := parseDetachKeys("ctrl-p,ctrl-q"); err != nil {
		t.Errorf("got error %v", err)
	}
}
