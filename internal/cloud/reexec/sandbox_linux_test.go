package reexec

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/envd"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// sandbox returns a guest whose directories are in a directory of the test.
func sandbox(t *testing.T) *inside.Guest {
	t.Helper()
	dir := t.TempDir()
	g := &inside.Guest{Root: filepath.Join(dir, "root"), Temp: filepath.Join(dir, "temp"), Run: filepath.Join(dir, "run")}
	home := filepath.Join(dir, "home")
	g.Users = []guest.User{{Name: "root", Home: filepath.Join(dir, "root-home")}, {Name: "user", Home: home, Credential: &syscall.Credential{Uid: 7}}}
	must.Do(t, errors.Join(os.Mkdir(g.Root, 0o755), os.Mkdir(g.Temp, 0o755), os.Mkdir(home, 0o755)))
	return g
}

// files returns the text of each file in a directory of files.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	all := map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		must.Do(t, err)
		all[entry.Name()] = string(text)
	}
	return all
}

// marked are the files of mark in the root directory and in the directory of envd.
func marked(sandbox, template string) (root, run map[string]string) {
	return map[string]string{".e2b": "ENV_ID=" + template + "\nTEMPLATE_ID=" + template + "\n"},
		map[string]string{".E2B_SANDBOX": "true", ".E2B_SANDBOX_ID": sandbox, ".E2B_TEMPLATE_ID": template}
}

// checkMarked checks that there are exactly the files of mark.
func checkMarked(t *testing.T, g *inside.Guest, sandbox, template string) {
	t.Helper()
	root, run := marked(sandbox, template)
	if diff := cmp.Diff([]map[string]string{root, run}, []map[string]string{files(t, g.Root), files(t, g.Run)}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMark checks the files of mark, which replace any kind of file, and that an error names the first
// that cannot be written.
func TestMark(t *testing.T) {
	t.Parallel()
	g := sandbox(t)
	must.Do(t, errors.Join(os.Mkdir(g.Run, 0o755), syscall.Mkfifo(filepath.Join(g.Run, ".E2B_SANDBOX"), 0o600), os.Symlink("nowhere", filepath.Join(g.Root, ".e2b"))))
	must.Do(t, mark(&guest.Config{SandboxID: "i1", TemplateID: "t1"}, g.Root, g.Run))
	checkMarked(t, g, "i1", "t1")

	below := filepath.Join(g.Root, ".e2b", "run")
	if err := mark(&guest.Config{TemplateID: "t2"}, g.Root, below); err == nil || !strings.HasPrefix(err.Error(), "mkdir ") {
		t.Errorf("got %v, want only that the directory cannot be made", err)
	}
	checkMarked(t, g, "i1", "t1")
	must.Is(t, replace(g.Run+"/.", "text"), syscall.EINVAL)
}

// TestUnlessClosed checks that only the errors of a directory that envd may not write to are dropped.
func TestUnlessClosed(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]error{nil: nil, syscall.EACCES: nil, syscall.EPERM: nil, syscall.EROFS: nil, syscall.ENOSPC: syscall.ENOSPC} {
		if got := unlessClosed(err); !errors.Is(got, want) {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}

// TestMarkKernel checks that the id of the kernel is in the home, and that a home that is no directory is
// an error.
func TestMarkKernel(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	must.Do(t, markKernel(home, "k1"))
	want := map[string]string{"kernel_id": "k1"}
	if diff := cmp.Diff(want, files(t, filepath.Join(home, ".jupyter"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := markKernel(filepath.Join(home, ".jupyter", "kernel_id"), "k2"); err == nil || !strings.HasPrefix(err.Error(), "mkdir ") {
		t.Errorf("got %v, want that the directory cannot be made", err)
	}
}

// TestWarm checks that only kernels of this machine's Python are forked.
func TestWarm(t *testing.T) {
	t.Parallel()
	g := sandbox(t)
	for _, config := range []guest.Config{{Image: "alpine"}, {Wasm: &guest.Wasm{}}} {
		if got := warm(&config, g); got != nil {
			t.Errorf("%+v: got %+v, want nil", config, got)
		}
	}
	got := warm(&guest.Config{System: map[string]string{"A": "b"}}, g)
	if got == nil || got.Fork == nil || !slices.Equal(got.Environ, []string{"LANG=C.UTF-8", "A=b"}) {
		t.Errorf("got %+v, want a fork with the environment of the system", got)
	}
}

// TestUserCredential checks that the identity of Deno is that of the default user.
func TestUserCredential(t *testing.T) {
	t.Parallel()
	g := sandbox(t)
	if got := userCredential(g); got != g.Users[1].Credential {
		t.Errorf("got %+v, want %+v", got, g.Users[1].Credential)
	}
	g.Users = g.Users[:1]
	if got := userCredential(g); got != nil {
		t.Errorf("without the user: got %+v, want nil", got)
	}
}

// TestWasm checks that Python in WebAssembly sees the directories of its user that exist, and that it
// needs a user.
func TestWasm(t *testing.T) {
	t.Parallel()
	g := sandbox(t)
	none, err := wasm(&guest.Config{}, g)
	must.Do(t, err)
	if none != nil {
		t.Errorf("got %+v without a configuration, want nil", none)
	}
	mount, file := t.TempDir(), filepath.Join(g.Temp, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	config := &guest.Config{Wasm: &guest.Wasm{Dir: t.TempDir(), Places: []string{mount, file, filepath.Join(mount, "gone")}, MemoryBytes: 1 << 30}}
	slices.Reverse(g.Users) // the user is the first
	got, err := wasm(config, g)
	must.Do(t, err)
	want := []string{g.Temp, g.Users[0].Home, mount}
	if info, err := os.Stat("/code"); err == nil && info.IsDir() {
		want = slices.Insert(want, 1, "/code")
	}
	command, err := wasmenv.Command(config.Wasm.Dir, want, 1<<30)
	must.Do(t, err)
	if diff := cmp.Diff([][]string{want, command, wasmenv.Environ()}, [][]string{got.Places, got.Command, got.Environ}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Is(t, got.Check(), wasmenv.ErrDamaged)

	config.Wasm.Dir = "relative"
	if _, err := wasm(config, g); err == nil || !strings.Contains(err.Error(), "not absolute") {
		t.Errorf("got %v, want that the directory is not absolute", err)
	}
	g.Users = g.Users[1:]
	if _, err := wasm(config, g); err == nil || !strings.Contains(err.Error(), "no user user") {
		t.Errorf("got %v, want that there is no user", err)
	}
}

// TestDaemonOptions checks that the options of envd are those of the configuration and of the sandbox.
func TestDaemonOptions(t *testing.T) {
	t.Parallel()
	g := sandbox(t)
	g.AnyUser, g.Users[0].UID, g.Users[0].GID = true, 3, 4
	memory, logger := &child.Memory{}, slog.New(slog.DiscardHandler)
	config := guest.Config{
		SandboxID: "i1", TemplateID: "t1", Workdir: guest.UserWorkdir, AccessToken: "secret", Envs: map[string]string{"A": "b"},
		Path: "/bin", MemoryBytes: 5, CPUs: 6, System: map[string]string{"C": "d"},
	}
	want := envd.Options{
		Users: g.Users, DefaultUser: "user", AnyUser: true, DefaultWorkdir: "/its/home", Scratch: g.Temp, Token: "secret",
		System: environment(&config, false, g.Temp, isFile), Envs: config.Envs, Path: "/bin", MemoryBytes: 5, CPUs: 6, Memory: memory,
	}
	compare := func(name string) {
		t.Helper()
		got := daemonOptions(&config, g, map[string]string{"user": "/its/home", "root": "/other"}, memory, logger)
		if got.Terminal == nil || got.MemoryUse == nil || got.Logger == nil {
			t.Errorf("%s: got no terminal, use of memory or log", name)
		}
		ignored := cmpopts.IgnoreFields(envd.Options{}, "Terminal", "MemoryUse", "Logger", "Memory")
		if diff := cmp.Diff(want, got, ignored); diff != "" || got.Memory != memory {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	compare("a room")
	config.User, config.Workdir = "other", "/work"
	want.DefaultUser, want.DefaultWorkdir = "other", "/work"
	compare("another user")
	config.Contained = true
	want.AnyOwner = os.Geteuid() == 0
	want.OneUser = daemonOptions(&config, g, nil, memory, logger).OneUser
	if !strings.HasPrefix(want.OneUser, "all processes of its container are 3:4, ") {
		t.Errorf("got %q, want the ids of the container", want.OneUser)
	}
	compare("a container")
}

// TestNewDaemon checks that only a default user that is gone is replaced, with a warning.
func TestNewDaemon(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, user, home string // home: the home of the default user; "": an error
		users            int
		warns            bool
	}{
		{"the user", "user", "home", 2, false},
		{"root", "root", "root-home", 2, false},
		{"a user that is gone", "e2b-gone", "home", 2, true},
		{"an id that is too great", "70000", "", 2, false},
		{"no user", "user", "", 1, false},
		{"nobody", "e2b-gone", "", 1, true},
	} {
		var log bytes.Buffer
		g := sandbox(t)
		daemon, err := newDaemon(t.Context(), envd.Options{Users: g.Users[:tt.users], DefaultUser: tt.user}, slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (tt.home != "") {
			t.Errorf("%s: got error %v, want one only without a home", tt.name, err)
		}
		if warned := strings.Contains(log.String(), "the default user is gone"); warned != tt.warns {
			t.Errorf("%s: got log %q, want a warning: %v", tt.name, log.String(), tt.warns)
		}
		if err != nil {
			continue
		}
		env, err := daemon.Environ("", nil)
		must.Do(t, err)
		if want := "HOME=" + filepath.Join(filepath.Dir(g.Root), tt.home); !slices.Contains(env, want) {
			t.Errorf("%s: got %q, want %s in it", tt.name, env, want)
		}
	}
}

// TestBecome checks that a restored sandbox has the token, the variables and the marks of its new
// configuration, and that none of them changes if the configuration is refused.
func TestBecome(t *testing.T) {
	t.Parallel()
	g := sandbox(t)
	daemon, err := envd.New(envd.Options{Users: g.Users, DefaultUser: "user", Token: "earlier"})
	must.Do(t, err)
	others, logger := &relay{guest: g}, slog.New(slog.DiscardHandler)
	for raw, want := range map[string]string{`{"sandboxId":`: "configuration of the sandbox", `{"envs":{"A=B":"c"}}`: "A=B"} {
		err := become(t.Context(), json.RawMessage(raw), g, daemon, others, logger)
		if err == nil || !strings.Contains(err.Error(), want) || daemon.Token() != "earlier" {
			t.Errorf("%s: got %v and token %q, want %q and the earlier token", raw, err, daemon.Token(), want)
		}
		if _, err := os.Stat(g.Run); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want no directory of marks", raw, err)
		}
	}
	raw, err := json.Marshal(guest.Config{SandboxID: "i2", TemplateID: "t2", AccessToken: "later", Envs: map[string]string{"A": "b"}})
	must.Do(t, err)
	must.Do(t, become(t.Context(), raw, g, daemon, others, logger))
	checkMarked(t, g, "i2", "t2")
	env, err := daemon.Environ("user", nil)
	must.Do(t, err)
	for _, want := range []string{"A=b", "LANG=C.UTF-8", "E2B_SANDBOX_ID=i2", "TMPDIR=" + g.Temp} {
		if !slices.Contains(env, want) {
			t.Errorf("got %q, want %s in it", env, want)
		}
	}
	if got := daemon.Token(); got != "later" {
		t.Errorf("got token %q, want %q", got, "later")
	}
}

// ear is a listener that only counts how often it is closed.
type ear struct {
	net.Listener
	closed int
}

func (e *ear) Close() error {
	e.closed++
	return nil
}

// TestRelayListensOnNone checks that the relay closes its listener only for another port, and that it does
// not listen without an egress.
func TestRelayListensOnNone(t *testing.T) {
	t.Parallel()
	r := &relay{guest: &inside.Guest{}}
	must.Do(t, r.listen(7))
	if r.port != 0 || r.listener != nil {
		t.Errorf("without an egress: got port %d", r.port)
	}
	e := &ear{}
	r = &relay{guest: &inside.Guest{Egress: true}, port: 7, listener: e}
	must.Do(t, r.listen(7))
	if r.port != 7 || r.listener != e || e.closed != 0 {
		t.Errorf("the same port: got port %d and %d calls of Close, want 7 and none", r.port, e.closed)
	}
	for range 2 {
		must.Do(t, r.listen(0))
		if r.port != 0 || r.listener != nil || e.closed != 1 {
			t.Errorf("no port: got port %d and %d calls of Close, want none and one", r.port, e.closed)
		}
	}
}

// TestLogger checks that long texts and errors are cut in the log of a sandbox, and that durations are
// readable.
func TestLogger(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	longest := strings.Repeat("x", 1<<10)
	newLogger(&log).DebugContext(t.Context(), "message", "fits", longest, "long", longest+"x", "error", errors.New(longest+"x"), "duration", 1234567*time.Nanosecond, "number", 3)
	var got map[string]any
	must.Do(t, json.Unmarshal(log.Bytes(), &got))
	delete(got, "time")
	want := map[string]any{
		"level": "DEBUG", "msg": "message", "fits": longest, "long": longest + "…", "error": longest + "…", "duration": "1.235ms", "number": 3.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestIsFile checks that only a regular file counts.
func TestIsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for name, want := range map[string]bool{"file": true, "gone": false, ".": false} {
		if got := isFile(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
