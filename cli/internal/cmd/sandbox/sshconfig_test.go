package sandbox

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

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
