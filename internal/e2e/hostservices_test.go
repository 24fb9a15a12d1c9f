//go:build linux

package e2e

import (
	"cmp"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestHostServices checks that programs in a sandbox talk to a service of this machine by its name,
// that a change of the rules cuts their connections, and that each connection, also one that is
// denied, is in the log. The address of the name is in a file, so the program asks no name server.
func TestHostServices(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	must.Do(t, err)
	defer l.Close()
	cut := make(chan error, 2)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = io.WriteString(conn, "hello\n")
			_, ended := io.Copy(io.Discard, conn)
			_ = conn.Close()
			cut <- ended
		}
	}()
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithoutPrivateNetworks(), local.WithHostService("here:7000", "unix:"+l.Addr().String()), local.WithHostService("gone", "127.0.0.1:1"))
	if got := cloud.Report().Egress; got != "transparent" {
		pinned.Skip(t, "sandboxes reach the network only through the proxy: %s", got)
	}
	sb := cloud.Create(t)
	const open = "exec 5<>/dev/tcp/here.host.internal/7000 && read -u 5 line && echo $line"
	if got := sandboxtest.Run(t, sb, "grep -c 'host[.]internal$' /etc/hosts"); strings.TrimSpace(got) != "2" {
		t.Errorf("/etc/hosts has %q services, want 2", got)
	}
	if got := sandboxtest.Run(t, sb, open+"; exec 6<>/dev/tcp/gone.host.internal/1; cat <&6 2>&1; true"); !strings.HasPrefix(got, "hello\n") {
		t.Errorf("got %q, want hello of the service", got)
	}
	patience.Receive(t, "the end of the connection", cut)
	heard := make(chan struct{})
	holding, err := sb.Commands.Start(t.Context(), open+"; cat <&5; echo ended", &sandbox.CommandParams{Stdout: whenWritten{sync.OnceFunc(func() { close(heard) })}})
	must.Do(t, err)
	defer holding.Disconnect()
	patience.Receive(t, "the connection", heard)
	must.Do(t, sb.SetNetwork(t.Context(), sandbox.Network{DenyOut: []string{sandbox.AllTraffic}}))
	patience.Receive(t, "the end of the connection", cut)
	if got, err := holding.Wait(t.Context()); err != nil || !strings.HasSuffix(got.Stdout, "ended\n") {
		t.Errorf("the command says %+v, error %v, want that its connection ended", got, err)
	}
	if got := sandboxtest.Run(t, sb, "{ "+open+"; } 2>&1; true"); strings.Contains(got, "hello") {
		t.Errorf("got %q of a service that the rules deny", got)
	}
	var said []string
	for entry, err := range sb.Logs(t.Context(), nil) {
		must.Do(t, err)
		if entry.Fields["logger"] == "network" {
			said = append(said, string(entry.Level)+" "+cmp.Or(entry.Fields["service"], "denied "+entry.Fields["host"]))
		}
	}
	if diff := gocmp.Diff([]string{"info here.host.internal:7000", "warn gone.host.internal:1", "info here.host.internal:7000", "info denied here.host.internal"}, said); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}
