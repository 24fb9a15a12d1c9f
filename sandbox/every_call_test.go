package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
)

// everyCall has the calls of a handle that send a request. local is a directory of this machine.
func everyCall(sb *Sandbox, local string) map[string]func(context.Context) error {
	type ctx = context.Context
	files, commands, contexts, packages := sb.Files, sb.Commands, sb.Contexts, sb.Packages
	which := ByPID(1)
	lock := &LockFile{Packages: []LockedPackage{{Name: "a", Version: "1", SHA256: []string{sumA}}}}
	calls := map[string]func(ctx) error{
		"RunCode":        func(c ctx) error { return second(sb.RunCode(c, "x", nil)) },
		"StreamCode":     func(c ctx) error { return second(listed(sb.StreamCode(c, "x", nil))) },
		"Eval":           func(c ctx) error { return second(Eval[int](c, sb, "x")) },
		"Dial":           func(c ctx) error { return second(sb.Dial(c, 1)) },
		"DialWebsocket":  func(c ctx) error { _, _, err := sb.DialWebsocket(c, 3000, "/", nil); return err },
		"WaitPort":       func(c ctx) error { return sb.WaitPort(c, 3000) },
		"Fork":           func(c ctx) error { return second(sb.Fork(c, nil)) },
		"Snapshot":       func(c ctx) error { return second(sb.Snapshot(c, nil)) },
		"MCPToken":       func(c ctx) error { return second(sb.MCPToken(c)) },
		"SetNetwork":     func(c ctx) error { return sb.SetNetwork(c, Network{}) },
		"Pause":          func(c ctx) error { return sb.Pause(c, nil) },
		"Resume":         func(c ctx) error { return sb.Resume(c, nil) },
		"RunProgram":     func(c ctx) error { return second(sb.RunProgram(c, &ProgramParams{Command: "x"})) },
		"Resize":         func(c ctx) error { return sb.Resize(c, Resources{CPUs: 1}) },
		"Info":           func(c ctx) error { return second(sb.Info(c)) },
		"SetLifetime":    func(c ctx) error { return sb.SetLifetime(c, time.Hour) },
		"Logs":           func(c ctx) error { return second(listed(sb.Logs(c, nil))) },
		"Metrics":        func(c ctx) error { return second(sb.Metrics(c, nil)) },
		"Kill":           sb.Kill,
		"Run":            func(c ctx) error { return second(commands.Run(c, "x", nil)) },
		"Start":          func(c ctx) error { return second(commands.Start(c, "x", nil)) },
		"ConnectCommand": func(c ctx) error { return second(commands.Connect(c, which, nil)) },
		"Exec":           func(c ctx) error { return second(commands.Exec(c, "x", nil, nil)) },
		"Output":         func(c ctx) error { return second(commands.Output(c, "x", nil, nil)) },
		"CombinedOutput": func(c ctx) error { return second(commands.CombinedOutput(c, "x", nil, nil)) },
		"ListCommands":   func(c ctx) error { return second(commands.List(c, nil)) },
		"KillCommand":    func(c ctx) error { return commands.Kill(c, which, nil) },
		"OpenPTY":        func(c ctx) error { return second(sb.PTY.Open(c, nil)) },
		"ConnectPTY":     func(c ctx) error { return second(sb.PTY.Connect(c, which, nil)) },
		"CreateContext":  func(c ctx) error { return second(contexts.Create(c, nil)) },
		"ListContexts":   func(c ctx) error { return second(contexts.List(c)) },
		"RestartContext": func(c ctx) error { return contexts.Restart(c, "") },
		"RemoveContext":  func(c ctx) error { return contexts.Remove(c, "a") },
		"Interrupt":      func(c ctx) error { return contexts.Interrupt(c, "") },
		"Complete":       func(c ctx) error { return second(contexts.Complete(c, "x", 1, nil)) },
		"Inspect":        func(c ctx) error { return second(contexts.Inspect(c, "x", 1, nil)) },
		"Check":          func(c ctx) error { return second(contexts.Check(c, "x", nil)) },
		"Install":        func(c ctx) error { return second(packages.Install(c, []string{"a"}, nil)) },
		"Lock":           func(c ctx) error { return second(packages.Lock(c, []string{"a"}, nil)) },
		"InstallLock":    func(c ctx) error { return second(packages.InstallLock(c, lock, nil)) },
		"HostContextID":  func(c ctx) error { return second(runHost{sb}.ContextID(c, "")) },
		"HostExecute": func(c ctx) error {
			return second(runHost{sb}.Execute(c, "", jupyter.ExecuteRequest{Code: "x"}, kernelconn.Handler{}))
		},
		"HostPrivate": func(c ctx) error { return runHost{sb}.CheckPrivate(c) },
	}
	maps.Copy(calls, map[string]func(ctx) error{
		"Read":        func(c ctx) error { return second(files.Read(c, "a", nil)) },
		"ReadText":    func(c ctx) error { return second(files.ReadText(c, "a", nil)) },
		"OpenFile":    func(c ctx) error { return second(files.Open(c, "a", nil)) },
		"Write":       func(c ctx) error { return files.Write(c, "a", nil, nil) },
		"WriteText":   func(c ctx) error { return files.WriteText(c, "a", "", nil) },
		"WriteFrom":   func(c ctx) error { return files.WriteFrom(c, "a", strings.NewReader("x"), nil) },
		"WriteFiles":  func(c ctx) error { return files.WriteFiles(c, []FileContent{{Path: "a"}}, nil) },
		"CopyFS":      func(c ctx) error { return files.CopyFS(c, fstest.MapFS{"a": {}}, "d") },
		"UploadDir":   func(c ctx) error { return files.UploadDir(c, local, "d", nil) },
		"DownloadDir": func(c ctx) error { return files.DownloadDir(c, "d", local+"/new", nil) },
		"FS":          func(c ctx) error { return second(files.FS(c, "").Open("a")) },
		"ReadTar":     func(c ctx) error { return files.ReadTar(c, "d", io.Discard, nil) },
		"WriteTar":    func(c ctx) error { return files.WriteTar(c, "d", new(bytes.Buffer), nil) },
		"ListFiles":   func(c ctx) error { return second(files.List(c, "d", nil)) },
		"Stat":        func(c ctx) error { return second(files.Stat(c, "a", nil)) },
		"Exists":      func(c ctx) error { return second(files.Exists(c, "a", nil)) },
		"MakeDir":     func(c ctx) error { return files.MakeDir(c, "d", nil) },
		"Rename":      func(c ctx) error { return files.Rename(c, "a", "b", nil) },
		"RemoveFile":  func(c ctx) error { return files.Remove(c, "a", nil) },
		"Watch":       func(c ctx) error { return second(files.Watch(c, "d", nil)) },
		"GitInit":     func(c ctx) error { return sb.Git.Init(c, "d", nil) },
		"GitClone":    func(c ctx) error { return sb.Git.Clone(c, "https://git.test/a", nil) },
		"GitStatus":   func(c ctx) error { return second(sb.Git.Status(c, "d", nil)) },
		"GitCommit":   func(c ctx) error { return second(sb.Git.Commit(c, "d", "m", nil)) },
		"GitConfig":   func(c ctx) error { return second(sb.Git.Config(c, "a.b", nil)) },
		"GitPush":     func(c ctx) error { return sb.Git.Push(c, "d", nil) },
		"GitBranches": func(c ctx) error { return second(sb.Git.Branches(c, "d", nil)) },
	})
	return calls
}

// TestEveryCallOfAHandle checks for each call that it sends nothing after its context or the handle has ended, that it fails
// if the service refuses every request, with a text that begins with its package, and that it has ended when it returns.
func TestEveryCallOfAHandle(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var asked atomic.Int64
	sb := s.sandbox(WithPrivateTraffic())
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"code":403,"message":"refused"}`)
	}
	s.control, s.contexts, s.execute, s.rest, s.socket, s.other = refuse, refuse, refuse, refuse, refuse, refuse
	s.raw = func(w http.ResponseWriter, r *http.Request) bool { refuse(w, r); return true }
	local := t.TempDir()
	quiet := []string{"HostPrivate"} // whose answer is known without a request
	usual := []string{"WaitPort"}    // an answer of any status is one
	ended, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the caller's reason")
	cancel(cause)
	for name, call := range everyCall(sb, local) {
		before := asked.Load()
		err := call(ended)
		if sent := asked.Load() - before; !slices.Contains(quiet, name) && (!errors.Is(err, cause) || sent > 0) {
			t.Errorf("%s, the context has ended: got error %v and %d requests, want the cause and none", name, err, sent)
		}
		err = call(t.Context())
		_, ofFile := errors.AsType[*fs.PathError](err)
		if fails := !slices.Contains(slices.Concat(quiet, usual), name); (err != nil) != fails || fails && !ofFile && !strings.HasPrefix(err.Error(), "sandbox: ") {
			t.Errorf("%s, refused: got error %v, want one of this package: %v", name, err, fails)
		}
		sb.running.Wait()
		sb.mu.Lock()
		if n := len(sb.calls); n > 0 {
			t.Errorf("%s: %d calls have not ended", name, n)
		}
		sb.mu.Unlock()
	}
	must.Do(t, sb.Detach())
	for name, call := range everyCall(sb, local) {
		before := asked.Load()
		err := call(t.Context())
		if sent := asked.Load() - before; !slices.Contains(quiet, name) && (!errors.Is(err, ErrClosed) || sent > 0) {
			t.Errorf("%s, closed: got error %v and %d requests, want %v and none", name, err, sent, ErrClosed)
		}
	}
}
