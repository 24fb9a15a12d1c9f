//go:build linux

package local_test

import (
	"context"
	_ "embed"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

//go:embed testdata/attack.py
var attack []byte

func hostileCloud(t *testing.T, options ...local.Option) *sandboxtest.Cloud {
	t.Helper()
	cloud := sandboxtest.New(t, options...)
	if cloud.Isolation() != local.Full {
		t.Skipf("isolation is %s here", cloud.Isolation())
	}
	return cloud
}

// TestAttack makes every kind of process in a sandbox look for a way out.
func TestAttack(t *testing.T) {
	t.Parallel()
	cloud := hostileCloud(t)
	sb, other := cloud.Create(t), cloud.Create(t, sandbox.WithPrivateTraffic())
	must.Do(t, sb.Files.Write(t.Context(), "/tmp/attack.py", attack, nil))
	abstract := "e2bctl-test-" + sb.ID()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", "@"+abstract)
	must.Do(t, err)
	defer listener.Close()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must.Do(t, err)
	args := []string{strings.TrimPrefix(cloud.URL(), "http://"), strings.TrimPrefix(string(cloud.APIKey()), "e2b_"), other.ID(), port, abstract}
	addresses, err := net.InterfaceAddrs()
	must.Do(t, err)
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
			args = append(args, ip.IP.String())
		}
	}
	command := "python3 /tmp/attack.py " + strings.Join(args, " ")
	check := func(who, output string) {
		t.Logf("%s: %s", who, output)
		if strings.Contains(output, "ESCAPED") || !strings.Contains(output, "tried ") {
			t.Errorf("%s got out:\n%s", who, output)
		}
	}
	for _, user := range []string{"user", "root"} {
		result, err := sb.Commands.Run(t.Context(), command, &sandbox.CommandParams{User: user})
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		check(user, result.Stdout)
	}
	var output strings.Builder
	code := "import sys; sys.argv = " + pythonList(append([]string{"attack.py"}, args...)) + "; exec(open('/tmp/attack.py').read())"
	if _, err := sb.RunCode(t.Context(), code, &sandbox.RunCodeParams{Stdout: &output}); err != nil {
		t.Fatal(err)
	}
	check("kernel", output.String())
}

func pythonList(items []string) string { return "['" + strings.Join(items, "', '") + "']" }

// TestBombs checks that a sandbox that exhausts its own limits disturbs neither the
// server nor another sandbox for long.
func TestBombs(t *testing.T) {
	t.Parallel()
	cloud := hostileCloud(t, local.WithWarm(0))
	other := cloud.Create(t)
	sandboxtest.Run(t, other, "true")
	bombs := map[string]string{
		"processes":   `bomb() { bomb | bomb & }; bomb; sleep 5`,
		"memory":      `for i in 1 2 3 4; do python3 -c 'x = [bytearray(b"x" * (1 << 24)) for _ in range(1000)]' & done; wait`,
		"disk":        `for i in $(seq 1000); do head -c 64M /dev/zero > /tmp/$i || break; done; sleep 2`,
		"files":       `mkdir /tmp/f; cd /tmp/f; python3 -c 'for i in range(10**8): open(str(i), "w").close()'; sleep 2`,
		"sockets":     `python3 -c 'import socket; s = [socket.socketpair() for _ in range(10**6)]'; sleep 2`,
		"tunnels":     `for i in $(seq 10000); do (exec 5<>/dev/tcp/127.0.0.1/3128; printf "CONNECT 192.0.2.1:9 HTTP/1.1\r\nHost: x\r\n\r\n" >&5; sleep 3) & done; sleep 3`,
		"descriptors": `bomb() { python3 -c 'import os; r, w = os.pipe(); l = [os.dup(r) for _ in range(10**7)]'; }; for i in $(seq 100); do bomb & done; wait`,
		"watches":     `python3 -c 'import ctypes; l = ctypes.CDLL(None); n = [l.inotify_init() for _ in range(10**5)]; [l.inotify_add_watch(n[0], b"/proc/%d" % i, 2) for i in range(10**5)]; e = l.epoll_create1(0); f = [l.eventfd(0, 0) for _ in range(10**5)]; [l.epoll_ctl(e, 1, i, ctypes.create_string_buffer(12)) for i in f]'; sleep 2`,
		"queues":      `python3 -c 'import ctypes; l = ctypes.CDLL("librt.so.1"); [l.mq_open(b"/q%d" % i, 0o100 | 2, 0o600, None) for i in range(10**5)]'; python3 -c 'import ctypes; l = ctypes.CDLL(None); [l.shmget(0, 1 << 24, 0o1600) for i in range(10**5)]; [l.semget(0, 250, 0o1600) for i in range(10**5)]; [l.msgget(0, 0o1600) for i in range(10**5)]'; sleep 2`,
		"terminals":   `python3 -c 'import os; l = [os.openpty() for _ in range(10**5)]'; sleep 2`,
		"signals":     `python3 -c 'import os, signal, ctypes; signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 64)); l = ctypes.CDLL(None); [l.sigqueue(os.getpid(), 34 + i % 30, 0) for i in range(10**6)]; t = ctypes.c_void_p(); [l.timer_create(1, None, ctypes.byref(t)) for i in range(10**6)]'; sleep 2`,
		"own daemon":  `python3 -c 'import socket; s = [socket.create_connection(("127.0.0.1", 49983)) for _ in range(10**4)]'; sleep 2`,
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			sb := cloud.Create(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = sb.Commands.Run(ctx, bomb, nil) // how it fails does not matter
			}()
			for exploding := true; exploding; {
				select {
				case <-ended:
					exploding = false
				case <-ctx.Done():
					exploding = false
				default:
				}
				patient := patience.Context(t)
				result, err := other.Commands.Run(patient, "echo alive", nil)
				if err != nil || result.Stdout != "alive\n" {
					t.Fatalf("the other sandbox says %+v, %v, want that it is alive", result, err)
				}
				if _, err := other.Info(patient); err != nil {
					t.Fatal(err)
				}
			}
			patient := patience.Context(t)
			_ = sb.Kill(patient) // it may have died of the bomb
			if err := patient.Err(); err != nil {
				t.Errorf("to kill it: %v", err)
			}
			patience.Receive(t, "the end of the bomb", ended)
		})
	}
}

// TestEndlessHeader checks that an answer whose header does not end costs the server little.
func TestEndlessHeader(t *testing.T) { //nolint:paralleltest // it measures memory, and that of other tests would count
	cloud := hostileCloud(t, local.WithWarm(0))
	sb := cloud.Create(t)
	const server = `
import socket
l = socket.create_server(("127.0.0.1", 3000))
print("ready", flush=True)
while True:
    c, _ = l.accept()
    c.recv(4096)
    try:
        c.sendall(b"HTTP/1.1 200 OK\r\n")
        for i in range(1 << 14):
            c.sendall(b"X-%d: " % i + b"x" * (1 << 16) + b"\r\n")
        print("took it all", flush=True)
    except OSError:
        pass
`
	must.Do(t, sb.Files.Write(t.Context(), "server.py", []byte(server), nil))
	sandboxtest.Run(t, sb, "python3 server.py > server.log 2>&1 & until grep -q ready server.log; do :; done")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cloud.URL(), nil)
		must.Do(t, err)
		r.Header.Set("E2b-Sandbox-Id", sb.ID())
		r.Header.Set("E2b-Sandbox-Port", "3000")
		transport := &http.Transport{DisableKeepAlives: true}
		res, err := transport.RoundTrip(r)
		must.Do(t, err)
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("status %d", res.StatusCode)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the server holds %d bytes more", grown)
	}
	if got := sandboxtest.Run(t, sb, "cat server.log"); got != "ready" {
		t.Errorf("the sandbox says %q", got)
	}
}
