//go:build linux

package inside

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

const podPort = "7777"

// dialIn connects to the port of a pod from its network.
func (c *startedContainer) dialIn() (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and not unlocked, so that the thread ends with the goroutine
		space, failed := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.cmd.Process.Pid))
		if err = failed; err != nil {
			return
		}
		defer space.Close()
		if err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = net.Dial("tcp4", "127.0.0.1:"+podPort)
		}
	}()
	<-done
	return conn, err
}

// proved connects to a pod as a server with the key.
func (c *startedContainer) proved(t *testing.T, key ed25519.PrivateKey) net.Conn {
	t.Helper()
	var conn net.Conn
	patience.Until(t, "the pod listens", func() bool {
		var err error
		conn, err = c.dialIn()
		return err == nil
	})
	must.Do(t, tunnel.Prove(patience.Context(t), conn, key, "uid"))
	return conn
}

// TestPod checks that several servers reach the envd of a pod at once, that it outlives them, and that
// programs do not see the variables of the cluster.
func TestPod(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	env := []string{guest.PodUIDVariable + "=uid", "KUBERNETES_SERVICE_HOST=10.0.0.1", "KUBERNETES_PORT=x", "KUBERNETES=own", "OWN=1"}
	c := startContainer(t, 0, env, guest.Program, guest.PodArgument, podPort, base64.StdEncoding.EncodeToString(public))
	lines := map[string]chan string{}
	connect := func(name string) *tunnel.Server {
		t.Helper()
		heard := make(chan string, 64)
		lines[name] = heard
		server, err := tunnel.Open(patience.Context(t), c.proved(t, key), tunnel.Options{
			Hello: tunnel.Hello{ID: name, Config: json.RawMessage(fmt.Sprintf(`{"user":%q}`, name))}, Egress: outside{fmt.Errorf("of %s", name)}, Tell: func(line []byte) { heard <- string(line) },
		})
		must.Do(t, err)
		t.Cleanup(server.Close)
		return server
	}
	first := connect("first")
	got := factsFrom(t, reach(t, first, ""))
	var config guest.Config
	must.Do(t, json.Unmarshal(got.Config, &config))
	want := []any{"first", map[string]string{"OWN": "1", "KUBERNETES": "own"}, false, ""}
	if diff := cmp.Diff(want, []any{config.User, config.Envs, got.Dumpable, got.Became}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Do(t, c.proved(t, key).Close()) // one that leaves before its hello
	slow := c.proved(t, key)             // one that sends none
	defer slow.Close()
	second := connect("second")
	leavesBy := func(server *tunnel.Server, name string) {
		t.Helper()
		want := fmt.Sprintf("room: connect to a.test:80: of %s false", name)
		patience.Until(t, "connections leave by the newest server", func() bool { return reach(t, server, "leave") == want })
	}
	leavesBy(first, "second")
	if got := factsFrom(t, reach(t, second, "")); got.Became != `{"user":"second"}` {
		t.Errorf("it became %s", got.Became)
	}
	reach(t, first, `log "both"`)
	for name, of := range lines {
		for line := ""; line != `"both"`; {
			line = patience.Receive(t, "a line of "+name, of)
		}
	}
	second.Close()
	leavesBy(first, "first")
	first.Close()
	third := connect("third")
	leavesBy(third, "third")
	select {
	case err := <-c.ended:
		t.Errorf("it ended with %v", err)
		c.ended <- err
	default:
	}
}

// TestPodFails checks what a pod says that cannot listen.
func TestPodFails(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(make([]byte, ed25519.PublicKeySize))
	uid := []string{guest.PodUIDVariable + "=uid"}
	for name, tt := range map[string]struct {
		env       []string
		port, key string
		want      string
	}{
		"no key":      {uid, podPort, "-", `the key of the servers, "-", is no public key in base64`},
		"a short key": {uid, podPort, key[4:], "is no public key in base64"},
		"no UID":      {nil, podPort, key, "the variable " + guest.PodUIDVariable + " is not set"},
		"no port":     {uid, "99999", key, "invalid port"},
	} {
		c := startContainer(t, 0, tt.env, guest.Program, guest.PodArgument, tt.port, tt.key)
		if text := c.end(t); !strings.HasPrefix(text, "exit status 1 ") || !strings.Contains(text, tt.want) {
			t.Errorf("%s: it ended with %s, want %s", name, text, tt.want)
		}
	}
}

// TestProgramInContainer checks the program where it is started to install itself, and to remove files.
func TestProgramInContainer(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("/proc/self/exe")
	must.Do(t, err)
	for name, tt := range map[string]struct {
		args  []string
		input string
		want  string // its last words
	}{
		"installed":              {[]string{guest.InstallArgument, "/etc/program", "10.0.0.0/8"}, "", "<nil> "},
		"in the way":             {[]string{guest.InstallArgument, "/etc/passwd"}, "", "exit status 1 e2bctl-cloud: copy the program to /etc/passwd: open /etc/passwd: file exists\n"},
		"networks that are none": {[]string{guest.InstallArgument, "/etc/program", "own"}, "", `exit status 1 e2bctl-cloud: close the network of the pod: open /etc/resolv.conf: no such file or directory; it needs the capability`},
		"another network":        {[]string{guest.InstallArgument, "/etc/program", "0.0.0.0/0", "own"}, "", `exit status 1 e2bctl-cloud: close the network of the pod: netip.ParsePrefix("own")`},
		"removes":                {[]string{guest.RemoveArgument}, "/etc/removed\x00/etc/none\x00", "<nil> "},
		"cannot remove":          {[]string{guest.RemoveArgument}, "/proc/version\x00", "exit status 1 e2bctl-cloud: remove what the saved sandbox had removed"},
	} {
		etc := newEtc(t)
		if name == "installed" {
			must.Do(t, os.WriteFile(etc+"/resolv.conf", nil, 0o644))
		}
		c := startContainerWith(t, etc, 0, nil, append([]string{guest.Program}, tt.args...)...)
		_, _ = io.WriteString(c.in, tt.input) // it may have ended
		must.Do(t, c.in.Close())
		if text := c.end(t); !strings.HasPrefix(text, tt.want) {
			t.Errorf("%s: it ended with %s, want %s", name, text, tt.want)
		}
		if exists(c.etc+"/removed") != (name != "removes") || exists(c.etc+"/program") != (name == "installed") {
			t.Errorf("%s: the files are removed: %v, and the program is there: %v", name, !exists(c.etc+"/removed"), exists(c.etc+"/program"))
		}
		if name != "installed" {
			continue
		}
		info, err := os.Stat(c.etc + "/program")
		must.Do(t, err)
		text, err := os.ReadFile(c.etc + "/program")
		if err != nil || info.Mode() != 0o555 || !bytes.Equal(text, own) {
			t.Errorf("it installed %d bytes with the mode %v, error %v", len(text), info.Mode(), err)
		}
	}
}
