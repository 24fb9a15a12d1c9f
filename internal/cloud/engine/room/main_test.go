//go:build linux

package room

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) {
	inside.Serve(serveTests)
	if dir := os.Getenv("ROOM_TEST_SERVER"); dir != "" {
		serveUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// testRequest is a request of a test to envd.
type testRequest struct {
	Command string // for /bin/sh -c
	User    string
	Host    string // the destination, for egress
	Port    uint16
}

type testResponse struct {
	Output string
	Status int
	Error  string
}

// serveTests is the envd of the tests: commands on port 49983.
func serveTests(ctx context.Context, g *inside.Guest) error {
	l, err := g.Listen(49983)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/config", func(w http.ResponseWriter, _ *http.Request) { w.Write(g.Config) })
	mux.HandleFunc("/break", func(http.ResponseWriter, *http.Request) { say(wire.Message{Kind: wire.KindSpawn}) })
	mux.HandleFunc("/kernels", func(w http.ResponseWriter, r *http.Request) {
		var a testResponse
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		for range n {
			if kernel, err := g.Kernel(r.Context()); err != nil {
				a.Error = err.Error()
			} else {
				a.Status++
				kernel.Close()
			}
		}
		json.NewEncoder(w).Encode(a)
	})
	mux.HandleFunc("/terminals", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(openTerminals(r.Context(), g))
	})
	mux.HandleFunc("/kernel/spoof", func(http.ResponseWriter, *http.Request) { say(wire.Message{Kind: wire.KindKernel, Host: "1"}) })
	mux.HandleFunc("/fail", func(http.ResponseWriter, *http.Request) {
		m := wire.Message{Kind: wire.KindFailed, Error: "no, I did not"}
		for err := say(m); err == nil || errors.Is(err, unix.EAGAIN); err = say(m) { // it sends this without end
		}
	})
	mux.HandleFunc("/eat", func(w http.ResponseWriter, _ *http.Request) {
		for { // until the kernel ends this process
			eaten = append(eaten, bytes.Repeat([]byte{1}, 1<<20))
		}
	})
	mux.HandleFunc("/run", answers(func(ctx context.Context, q testRequest) testResponse { return runTest(ctx, g, q) }))
	mux.HandleFunc("/own", answers(ownFile))
	mux.HandleFunc("/egress", answers(func(ctx context.Context, q testRequest) testResponse { return pingEgress(ctx, g, q) }))
	logger := slog.New(slog.NewJSONHandler(g.Log, nil))
	logger.InfoContext(ctx, "starting")
	mux.HandleFunc("/log", func(w http.ResponseWriter, r *http.Request) {
		var q testRequest
		_ = json.NewDecoder(r.Body).Decode(&q)
		logger.InfoContext(r.Context(), q.Command)
		json.NewEncoder(w).Encode(testResponse{})
	})
	go child.Reap(ctx)
	server := &http.Server{Handler: mux}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := g.Ready(); err != nil {
		return err
	}
	return server.Serve(l)
}

// answers returns a handler that answers a testRequest with the result of f.
func answers(f func(context.Context, testRequest) testResponse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q testRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		json.NewEncoder(w).Encode(f(r.Context(), q))
	}
}

// ownFile makes a file as envd does, and changes it.
func ownFile(_ context.Context, q testRequest) (a testResponse) {
	err := errors.Join(os.WriteFile(q.Command, nil, 0o600), os.Chmod(q.Command, 0o640), os.Chown(q.Command, os.Getuid(), -1))
	if info, statErr := os.Stat(q.Command); statErr == nil {
		a.Output = info.Mode().String()
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// pingEgress connects to a host, sends ping, and returns the answer.
func pingEgress(ctx context.Context, g *inside.Guest, q testRequest) (a testResponse) {
	conn, err := g.DialEgress(ctx, q.Host, q.Port)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	defer conn.Close()
	conn.Write([]byte("ping"))
	conn.(interface{ CloseWrite() error }).CloseWrite()
	data, _ := io.ReadAll(conn)
	a.Output = string(data)
	return a
}

var eaten [][]byte

// say sends a message that an envd never sends over the control connection of this
// process. It finds the connection as code that controls an envd would.
func say(m wire.Message) error {
	for fd := hello.ControlFD; fd < 64; fd++ {
		if typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && typ == unix.SOCK_SEQPACKET {
			_, err := unix.Write(fd, wire.Encode(m))
			return err
		}
	}
	return errors.New("no control connection")
}

// openTerminals opens terminals until one is refused, reports their number and the
// output of the last one, and closes them.
func openTerminals(ctx context.Context, g *inside.Guest) (a testResponse) {
	var open []*os.File
	defer func() { wire.CloseAll(open) }()
	for {
		controller, tty, err := g.Terminal(ctx)
		if err != nil {
			a.Error = err.Error()
			return a
		}
		open = append(open, controller, tty)
		a.Status++
		line := make([]byte, len("through\r\n")) // which may come in pieces
		if _, err := tty.WriteString("through\n"); err != nil {
			a.Error = err.Error()
			return a
		}
		n, _ := io.ReadFull(controller, line)
		a.Output = string(line[:n])
	}
}

func runTest(ctx context.Context, g *inside.Guest, q testRequest) testResponse {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", q.Command)
	home := g.Users[1].Home
	cmd.Env = []string{"PATH=" + DefaultPath, "HOME=" + home, "TMPDIR=" + g.Temp}
	cmd.Dir = home
	for _, u := range g.Users {
		if u.Name == q.User && u.Credential != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
		}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := child.Start(cmd)
	if err == nil {
		err = child.Wait(cmd)
	}
	a := testResponse{Output: out.String(), Status: cmd.ProcessState.ExitCode()}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// call sends a request to the test envd of a sandbox.
func call(t testing.TB, s *Sandbox, path string, q testRequest) testResponse {
	t.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, 49983) },
	}
	client := &http.Client{Transport: transport, Timeout: patience.Limit}
	body, _ := json.Marshal(q)
	res, err := client.Post("http://sandbox"+path, "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer res.Body.Close()
	var a testResponse
	must.Do(t, json.NewDecoder(res.Body).Decode(&a))
	return a
}

func sh(t testing.TB, s *Sandbox, command string) testResponse {
	t.Helper()
	return call(t, s, "/run", testRequest{Command: command})
}

func instanceDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "instance")
	must.Do(t, os.Mkdir(dir, 0o700))
	return dir
}

// onOwnThread calls f on a thread that ends with it, so that f may change the thread.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		f()
	}()
	<-done
}

type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

// startRoom starts a room, with Full isolation unless o says otherwise, whose processes have no race
// detector unless o says otherwise. The test must close it. With CI=true a machine that refuses fails
// the test.
func startRoom(t testing.TB, o Options) *Room {
	t.Helper()
	o.Dir = instanceDir(t)
	if o.Isolation == engine.Auto {
		o.Isolation = engine.Full
	}
	if o.Binary == "" {
		o.Binary = plainProgram(t)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	r, err := Start(t.Context(), o)
	if errors.Is(err, engine.ErrNoIsolation) && os.Getenv("CI") != "true" {
		t.Skipf("this machine does not give it: %v", err)
	}
	must.Do(t, err)
	return r
}

func newRoom(t testing.TB) *Room {
	t.Helper()
	return newRoomOn(t, engine.Full)
}

func newRoomOn(t testing.TB, level engine.Isolation) *Room {
	t.Helper()
	return newRoomWith(t, Options{Isolation: level})
}

func newRoomWith(t testing.TB, o Options) *Room {
	t.Helper()
	r := startRoom(t, o)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// checkLevel skips a test if the machine does not support the level.
func checkLevel(t *testing.T, level engine.Isolation) {
	t.Helper()
	if _, supported := supportedLevels.Load(level); !supported {
		newRoomOn(t, level)
		supportedLevels.Store(level, true)
	}
}

var supportedLevels sync.Map

func newSandbox(t testing.TB, r *Room, o engine.SandboxOptions) *Sandbox {
	t.Helper()
	if o.ID == "" {
		o.ID = "test"
	}
	s, err := r.NewSandbox(t.Context(), o)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// left is the report of a mini server about its processes and files, to be looked
// for after its end.
type left struct {
	Dir    string
	Roots  string
	Groups []string
	Pids   []int // keeper, room, envd and zygote, with its children
}

// serveUntilKilled is a server for the tests that kill one.
func serveUntilKilled(dir string) {
	ctx := context.Background()
	o := Options{Dir: dir, Isolation: engine.Isolation(os.Getenv("ROOM_TEST_LEVEL"))}
	means := os.Getenv("ROOM_TEST_FREEZE") // only sandboxes are frozen, and no zygote
	if env, err := pyenv.Find(ctx); means == "" && err == nil && env.Level != pyenv.Plain {
		o.Trees, o.Zygote = env.Trees, zygoteOf(env)
	}
	r, err := Start(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for o.Zygote != nil && r.level == engine.Full && len(r.report.Hidden) == 0 && !r.zygote.isWarm() {
		<-tick.C // the processes may not exist earlier
	}
	s, err := r.NewSandbox(ctx, engine.SandboxOptions{ID: "victim"})
	if err != nil {
		log.Fatal(err)
	}
	l := left{Dir: dir, Roots: r.keeper.spec.Roots, Groups: r.keeper.groups.Directories(), Pids: []int{r.keeper.running().Cmd.Process.Pid, r.process.first.Cmd.Process.Pid}}
	for i := 1; i < len(l.Pids); i++ { // with the descendants of the room
		children, err := orphan.ChildrenOf(l.Pids[i])
		if err != nil {
			log.Fatal(err)
		}
		l.Pids = append(l.Pids, children...)
	}
	if means != "" {
		if means == bySignals {
			s.share.group = withoutFreezer(s.share.group)
		}
		if err := s.Freeze(ctx); err != nil {
			log.Fatal(err)
		}
	}
	json.NewEncoder(os.Stdout).Encode(l)
	<-s.Done()
}

// exists reports whether path exists, following links.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// envdPID returns the first child of the room, as the host numbers it.
func envdPID(r *Room) int {
	if children, err := orphan.ChildrenOf(r.process.first.Cmd.Process.Pid); err == nil && len(children) > 0 {
		return children[0]
	}
	return 0
}
