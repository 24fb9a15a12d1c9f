package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rpc "connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
	"github.com/e2bctl/e2bctl/sandbox"
)

// played is a sandbox that a test plays. It records the requests about its shell.
type played struct {
	processconnect.UnimplementedProcessHandler
	filesystemconnect.UnimplementedFilesystemHandler

	fails map[string]rpc.Code // of the requests "stat", "input", "kill", and "start" with a directory
	code  string              // the lines about code; after those that have no end the code goes on
	port  int                 // the only port on which something listens
	file  playedFile          // the only file

	mu      sync.Mutex
	output  string // of the next command, in which WORD stands for the shell's word; after "EXIT" the shell ends
	printed chan string
	events  []string
}

// lostPort is a port whose requests do not reach a played sandbox.
const lostPort = 8002

// playedFile is a file of a played sandbox.
type playedFile struct {
	content  string
	cut      bool   // the content is cut off
	refuses  bool   // it cannot be written
	written  string // the last content that was written
	requests atomic.Int64
}

func (f *playedFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	defer f.requests.Add(-1)
	switch {
	case r.URL.Query().Get("path") != "f" || r.Method == http.MethodPost && f.refuses:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPost:
		text, err := io.ReadAll(r.Body)
		if f.written = string(text); err == nil {
			_, _ = io.WriteString(w, `[{"name":"f","path":"/home/user/f","type":"file"}]`)
		}
	case f.cut:
		w.Header().Set("Content-Length", fmt.Sprint(len(f.content)+1))
		fallthrough
	default:
		_, _ = io.WriteString(w, f.content)
	}
}

// sandbox returns a handle for the sandbox, in a bubble.
func (p *played) sandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	return cmdtest.PipedSandbox(t, p.handler())
}

// handler answers the requests to the sandbox.
func (p *played) handler() *http.ServeMux {
	p.printed = make(chan string, 10)
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(p))
	mux.Handle(filesystemconnect.NewFilesystemHandler(p))
	mux.HandleFunc("POST /execute", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, p.code)
		_ = http.NewResponseController(w).Flush()
		if !strings.Contains(p.code, "end_of_execution") {
			<-r.Context().Done()
		}
	})
	mux.Handle("/files", &p.file)
	mux.HandleFunc("GET /contexts", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"id":"default","language":"python","cwd":"/home/user"}]`)
	})
	mux.HandleFunc("GET /api/", http.NotFound) // there are no websockets of kernels
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		var port int
		if _, err := fmt.Sscanf(r.Header.Get("E2b-Sandbox-Port"), "%d", &port); err != nil || port != p.port {
			w.WriteHeader(http.StatusBadGateway)
			if port == lostPort {
				_, _ = io.WriteString(w, `{"sandboxId":"i1","message":"not found","code":502}`)
				return
			}
			_, _ = fmt.Fprintf(w, `{"sandboxId":"i1","message":"closed","code":502,"port":%d}`, port)
		}
	})
	return mux
}

// note records a request, and returns the error of those that fail.
func (p *played) note(request, details string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, strings.TrimSpace(request+" "+details))
	if code, ok := p.fails[request]; ok {
		return rpc.NewError(code, errors.New("refused"))
	}
	return nil
}

func (p *played) Stat(context.Context, *rpc.Request[filesystem.StatRequest]) (*rpc.Response[filesystem.StatResponse], error) {
	if err := p.note("stat", ""); err != nil {
		return nil, err
	}
	return rpc.NewResponse(&filesystem.StatResponse{Entry: &filesystem.EntryInfo{Name: "user", Path: "/home/user", Type: filesystem.FileType_FILE_TYPE_DIRECTORY}}), nil
}

func (p *played) Start(ctx context.Context, r *rpc.Request[process.StartRequest], to *rpc.ServerStream[process.StartResponse]) error {
	user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth()
	program := r.Msg.GetProcess()
	if err := p.note("start "+program.GetCwd(), fmt.Sprintf("as %s with HOME %s", user, program.GetEnvs()["HOME"])); err != nil {
		return err
	}
	send := func(event *process.ProcessEvent) error { return to.Send(&process.StartResponse{Event: event}) }
	if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case text := <-p.printed:
			text, ends := strings.CutSuffix(text, "EXIT")
			data := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(text)}}
			if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}}); err != nil {
				return err
			}
			if ends {
				return send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true}}})
			}
		}
	}
}

var wordOfShell = regexp.MustCompile(`^builtin eval (.+) </dev/null .* ([A-Z2-7]{20,}) \$\?`)

func (p *played) SendInput(_ context.Context, r *rpc.Request[process.SendInputRequest]) (*rpc.Response[process.SendInputResponse], error) {
	parts := wordOfShell.FindStringSubmatch(string(r.Msg.GetInput().GetStdin()))
	if parts == nil {
		return nil, rpc.NewError(rpc.CodeInvalidArgument, errors.New("not a command"))
	}
	if err := p.note("input", parts[1]); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printed <- strings.ReplaceAll(p.output, "WORD", parts[2])
	return rpc.NewResponse(&process.SendInputResponse{}), nil
}

func (p *played) SendSignal(_ context.Context, r *rpc.Request[process.SendSignalRequest]) (*rpc.Response[process.SendSignalResponse], error) {
	if err := p.note("kill", r.Msg.GetSignal().String()); err != nil {
		return nil, err
	}
	p.printed <- "EXIT"
	return rpc.NewResponse(&process.SendSignalResponse{}), nil
}

// requests returns the requests since its last call.
func (p *played) requests() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	events := p.events
	p.events = nil
	return events
}

// TestPlayedShell checks the answers about commands of each end, in which directory and shell the next command runs, and
// that another command can then run.
func TestPlayedShell(t *testing.T) {
	t.Parallel()
	const home, work = "start /home/user as root with HOME /home/user", "start /work as root with HOME /home/user"
	type step struct {
		output, text, note string // of the command; an output "EXIT, " comes before it
		failure            string // a part of the error; "": none
		want               []string
	}
	first := step{"one\n\nWORD 3 /work\nlate\n", "one\n", "exit status 3 · in /work", "", []string{"stat", home, "input line"}}
	after := step{"\nWORD 0 /work\n", "", "exit status 0 · in /work", "", []string{"stat", work, "input line"}}
	for name, tt := range map[string]struct {
		fails map[string]rpc.Code // from the second command on
		steps []step
	}{
		"one after the other": {nil, []step{first, {"two\n\nWORD 0 /a b\n", "(output of background jobs)\nlate|two\n", "exit status 0 · in /a b", "", []string{"input line"}}, {
			"three\n\nWORD 0 /a b\n", "three\n", "exit status 0 · in /a b", "", []string{"input line"},
		}}},
		"no first shell": {map[string]rpc.Code{"start /home/user": rpc.CodePermissionDenied}, []step{{"", "", "", "refused", []string{"stat", home}}}},
		"too long": {nil, []step{first, {
			"begun\n", "(output of background jobs)\nlate|begun", "", "the command was stopped after 1m40s, and the shell with it: the next command runs in a new one, in /work.",
			[]string{"input line", "kill SIGNAL_SIGKILL"},
		}, after}},
		"the shell ends": {nil, []step{first, {
			"end EXIT", "(output of background jobs)\nlate|end ", "", "the shell has ended, because the command ended it; the next command runs in a new one, in /work", []string{"input line", "stat"},
		}, after}},
		"the shell ended before": {nil, []step{first, {
			"EXIT, \nWORD 0 /a\n", "", "exit status 0 · in /a", "", []string{"stat", work, "input line"},
		}}},
		"the sandbox ends": {map[string]rpc.Code{"stat": rpc.CodePermissionDenied}, []step{
			first, {"EXIT", "(output of background jobs)\nlate", "", "stat", []string{"input line", "stat"}},
			{"", "", "", "stat", []string{"stat", "stat"}},
		}},
		"no input": {map[string]rpc.Code{"input": rpc.CodePermissionDenied}, []step{
			first, {"", "(output of background jobs)\nlate", "", "refused", []string{"input line", "kill SIGNAL_SIGKILL"}},
		}},
		"the shell has gone at the kill": {map[string]rpc.Code{"kill": rpc.CodeNotFound}, []step{
			first, {"", "(output of background jobs)\nlate", "", "the command was stopped after", []string{"input line", "kill SIGNAL_SIGKILL"}},
		}},
		"the kill fails": {map[string]rpc.Code{"kill": rpc.CodePermissionDenied}, []step{
			first, {"", "(output of background jobs)\nlate", "", "refused", []string{"input line", "kill SIGNAL_SIGKILL"}},
		}},
		"the directory is removed": {map[string]rpc.Code{"start /work": rpc.CodeNotFound}, []step{
			first, {"EXIT", "(output of background jobs)\nlate", "", "the shell has ended", []string{"input line", "stat"}},
			{"\nWORD 0 /home/user\n", "", "exit status 0 · in /home/user", "", []string{"stat", work, "stat", home, "input line"}},
		}},
		"no shell starts": {map[string]rpc.Code{"start /work": rpc.CodeNotFound, "start /home/user": rpc.CodePermissionDenied}, []step{
			first, {"EXIT", "(output of background jobs)\nlate", "", "the shell has ended", []string{"input line", "stat"}},
			{"", "", "", "refused", []string{"stat", work, "stat", home}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &played{}
				box := newHeld(p.sandbox(t), true)
				for n, step := range tt.steps {
					output, ended := strings.CutPrefix(step.output, "EXIT, ")
					if p.output = output; ended {
						p.printed <- "EXIT"
						synctest.Wait()
					}
					if n > 0 || step.failure != "" {
						p.fails = tt.fails
					}
					c := newCall()
					c.box = box
					err := runBash(t.Context(), c, bashArguments{Command: "line", Seconds: 100})
					if (err == nil) != (step.failure == "") || err != nil && !strings.Contains(err.Error(), step.failure) {
						t.Errorf("command %d: got error %v, want %q", n, err, step.failure)
					}
					if err != nil && strings.Contains(err.Error(), "refused") != strings.Contains(step.failure, "refused") && step.failure != "stat" {
						t.Errorf("command %d: got error %v, which is also that of another request", n, err)
					}
					if text, notes := strings.Join(c.answer.text, "|"), strings.Join(c.answer.notes, "|"); text != strings.TrimSuffix(step.text, "\n") || notes != step.note {
						t.Errorf("command %d: got %q with %q, want %q with %q", n, text, notes, step.text, step.note)
					}
					if diff := cmp.Diff(step.want, p.requests()); diff != "" {
						t.Errorf("command %d: requests (-want +got):\n%s", n, diff)
					}
					wantFree(t, box, err == nil)
				}
			})
		})
	}
}

// TestCommandsThatAreRefused checks the errors of commands that never reach a shell.
func TestCommandsThatAreRefused(t *testing.T) {
	t.Parallel()
	gone := errors.New("the client has gone")
	box := newHeld(nil, true)
	must.Do(t, box.shellTurn.acquire(t.Context()))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := runBash(ctx, &call{box: box}, bashArguments{}); !errors.Is(err, gone) || !strings.Contains(err.Error(), "another command was still running") {
		t.Errorf("during a command: got error %v", err)
	}
	if err := runBash(t.Context(), &call{box: box}, bashArguments{Seconds: 3601}); err == nil || !strings.Contains(err.Error(), "timeout_seconds is 3601") {
		t.Errorf("too much time: got error %v", err)
	}
	if len(box.shellTurn) != 1 {
		t.Error("a command that was refused has ended the turn of another one")
	}
}

// TestReleasedShells checks that the shell ends with the hold of a sandbox that stays.
func TestReleasedShells(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ own, keep bool }{"another's": {false, false}, "one that is kept": {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := newPretended(t, func(c *Config) { c.Keep = tt.keep })
			p := &played{output: "\nWORD 0 /work\n"}
			service := p.handler()
			service.HandleFunc("POST /v2/sandboxes/i1/connect", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13"}`)
			})
			const url = "http://service.invalid"
			client, err := sandbox.NewClient(sandbox.WithTransport(pipetest.Serve(t, service)), sandbox.WithAPIKey("e2b_00"), sandbox.WithEnvFile(""), sandbox.WithAPIURL(url), sandbox.WithSandboxURL(url))
			must.Do(t, err)
			sb, err := client.Connect(t.Context(), "i1")
			must.Do(t, err)
			c := newCall()
			c.box = newHeld(sb, tt.own)
			must.Do(t, runBash(t.Context(), c, bashArguments{Command: "line"}))
			p.requests()
			must.Do(t, h.release(c.box))
			if diff := cmp.Diff([]string{"kill SIGNAL_SIGKILL"}, p.requests()); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", name, diff)
			}
			wantFree(t, c.box, true)
			if _, err := c.box.Files.Stat(t.Context(), ".", nil); !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("%s: got error %v of a sandbox that was let go, want %v", name, err, sandbox.ErrClosed)
			}
			must.Do(t, errors.Join(h.close(), client.Close()))
		})
	}
}

// wantFree checks that nothing keeps a sandbox's locks, and whether its shell is there for another command.
func wantFree(t *testing.T, box *held, there bool) {
	t.Helper()
	if len(box.shellTurn)+len(box.codeTurn) > 0 || cap(box.shellTurn)+cap(box.codeTurn) != 2 || !box.mu.TryLock() {
		t.Fatal("a lock of the sandbox is kept")
	}
	box.mu.Unlock()
	if (box.shell != nil) != there {
		t.Errorf("there is a shell: %v, want %v", box.shell != nil, there)
	}
	if box.shell == nil {
		return
	}
	if !box.shell.mu.TryLock() {
		t.Fatal("a lock of the shell is kept")
	}
	defer box.shell.mu.Unlock()
	if box.shell.running != nil {
		t.Error("the shell has a command")
	}
}

// TestPlayedCode checks the answers about code of each end.
func TestPlayedCode(t *testing.T) {
	t.Parallel()
	const begin, end = `{"type":"number_of_executions","execution_count":1}` + "\n", `{"type":"end_of_execution"}` + "\n"
	const printed = `{"type":"stdout","text":"out\n"}` + "\n" + `{"type":"stderr","text":"err\n"}` + "\n"
	const result, picture = `{"type":"result","text":"7","is_main_result":true}` + "\n", `{"type":"result","png":"aGk="}` + "\n"
	for name, tt := range map[string]struct {
		lines         string
		seconds       int
		text, note    string
		media         int
		failure       string // "": none
		took          time.Duration
		alsoTraceback bool
	}{
		"all":           {lines: begin + printed + result + picture + end, text: "out\nerr|7", note: "result-2.png is no picture that can be shown: image: unknown format", media: 1},
		"nothing":       {lines: begin + end},
		"an exception":  {lines: begin + printed + `{"type":"error","name":"E\nF","value":"v","traceback":"\u001b[1mline 1"}` + "\n" + end, text: "out\nerr|line 1", failure: "the code raised E\nF"},
		"too long":      {lines: begin + printed, seconds: 2, text: "out\nerr", failure: "the code was interrupted after 2s: variables", took: 2 * time.Second},
		"the usual":     {lines: begin, failure: "the code was interrupted after 5m0s: variables", took: usualCodeTime},
		"longer":        {seconds: 3601, failure: "timeout_seconds is 3601: want 1 to 3600"},
		"the code dies": {lines: begin + printed + `{"type":"error","name":"ContextRestarting","value":"Context was restarted","traceback":""}` + "\n" + end, text: "out\nerr", failure: sandbox.ErrKernelDied.Error()},
		"many results": {
			lines: begin + strings.Repeat(`{"type":"result","svg":"<svg/>"}`+"\n", 10_002) + end, media: maxMedia,
			note: "9960 more results are left out: show fewer, or write them to files|2 more results were too many or too large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &played{code: tt.lines}
				c := newCall()
				c.box = newHeld(p.sandbox(t), true)
				began := time.Now()
				err := runPython(t.Context(), c, pythonArguments{Code: "code", Seconds: tt.seconds})
				if (err == nil) != (tt.failure == "") || err != nil && !strings.Contains(err.Error(), tt.failure) {
					t.Errorf("got error %v, want %q", err, tt.failure)
				}
				if took := time.Since(began).Truncate(time.Second); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if text, notes := strings.Join(c.answer.text, "|"), strings.Join(c.answer.notes, "|"); text != tt.text || notes != tt.note || len(c.answer.media) != tt.media {
					t.Errorf("got %q with %q and %d links, want %q with %q and %d", text, notes, len(c.answer.media), tt.text, tt.note, tt.media)
				}
				wantFree(t, c.box, false)
			})
		})
	}
}

// TestPlayedPorts checks for how long a server is awaited, and that each port is published once.
func TestPlayedPorts(t *testing.T) {
	t.Parallel()
	gone, broken := errors.New("the client has gone"), errors.New("no address")
	synctest.Test(t, func(t *testing.T) {
		p := &played{port: 8000}
		box := newHeld(p.sandbox(t), true)
		publications, ended := 0, 0
		var refused error
		publish := func(_ context.Context, sb *sandbox.Sandbox, port int) (string, func() error, error) {
			if sb != box.Sandbox {
				t.Error("another sandbox is published")
			}
			publications++
			return fmt.Sprintf("address of %d", port), func() error { ended++; return nil }, refused
		}
		for _, tt := range []struct {
			name    string
			port    int
			refused error
			leaves  time.Duration // after this time the client has gone; 0: never
			took    time.Duration
			note    string
			failure string
			all     int // publications
		}{
			{"nobody listens", 8001, nil, 0, portPatience, "", "nothing listens on port 8001 of the sandbox after 20s: start the server first, in the background", 0},
			{"the client goes", 8001, nil, time.Second, time.Second, "", gone.Error(), 0},
			{"the sandbox ends", lostPort, nil, 0, 0, "", "is gone", 0},
			{"refused", 8000, broken, 0, 0, "", broken.Error(), 1},
			{"published", 8000, nil, 0, 0, "port 8000 of the sandbox is at address of 8000, until the sandbox ends", "", 2},
			{"again", 8000, broken, 0, 0, "port 8000 of the sandbox is at address of 8000, until the sandbox ends", "", 2},
			{"too low", 0, nil, 0, 0, "", "port is 0: want 1 to 65535", 2},
			{"the lowest", 1, nil, 0, portPatience, "", "nothing listens on port 1 ", 2},
			{"the highest", 65535, nil, 0, portPatience, "", "nothing listens on port 65535 ", 2},
			{"too high", 65536, nil, 0, 0, "", "port is 65536: want 1 to 65535", 2},
			{"an own one", 49999, nil, 0, 0, "", "port 49999 is one of the sandbox's own", 2},
		} {
			refused = tt.refused
			ctx, cancel := context.WithCancelCause(t.Context())
			if tt.leaves > 0 {
				time.AfterFunc(tt.leaves, func() { cancel(gone) })
			}
			c := newCall()
			c.server.config.Publish, c.box = publish, box
			began := time.Now()
			err := publishPort(ctx, c, publishArguments{Port: tt.port})
			cancel(nil)
			if took := time.Since(began); took != tt.took || publications != tt.all {
				t.Errorf("%s: took %v, and there were %d publications, want %v and %d", tt.name, took, publications, tt.took, tt.all)
			}
			if (err == nil) != (tt.failure == "") || err != nil && !strings.Contains(err.Error(), tt.failure) || strings.Contains(tt.failure, "nothing") != strings.Contains(fmt.Sprint(err), "start the server") {
				t.Errorf("%s: got error %v, want %q", tt.name, err, tt.failure)
			}
			if notes := strings.Join(c.answer.notes, "|"); notes != tt.note {
				t.Errorf("%s: got the notes %q, want %q", tt.name, notes, tt.note)
			}
			wantFree(t, box, false)
		}
		if len(box.forwards) != 1 || box.forwards[8000].end() != nil || ended != 1 {
			t.Errorf("got the addresses %v, want the one that was published", box.forwards)
		}
	})
}

// TestPlayedFiles checks the answers about a file of each kind and size, its content afterwards, and that no request goes on.
func TestPlayedFiles(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	must.Do(t, png.Encode(&file, image.NewGray(image.Rect(0, 0, 2, 2))))
	small := file.String()
	file.Reset()
	must.Do(t, jpeg.Encode(&file, image.NewGray(image.Rect(0, 0, 2, 2)), nil))
	padded := func(n int) string { return small + strings.Repeat("\x00", n-len(small)) }
	of := func(n int) string { return "a" + strings.Repeat("b", n-1) }
	read := func(offset, limit int) func(context.Context, *call) error {
		return func(ctx context.Context, c *call) error {
			return readFile(ctx, c, readArguments{Path: "f", Offset: offset, Limit: limit})
		}
	}
	edit := func(before, after string, all bool) func(context.Context, *call) error {
		return func(ctx context.Context, c *call) error {
			return editFile(ctx, c, editArguments{Path: "f", Old: before, New: after, All: all})
		}
	}
	write := func(ctx context.Context, c *call) error {
		return writeFile(ctx, c, writeArguments{Path: "f", Content: "text"})
	}
	for name, tt := range map[string]struct {
		content      string
		cut, refuses bool
		do           func(context.Context, *call) error
		text, note   string
		media        int
		failure      string
		written      string
	}{
		"text":               {content: "a\nb", do: read(0, 0), text: "a\nb"},
		"the most lines":     {content: "a", do: read(0, maxLines), text: "a"},
		"more lines":         {content: "a", do: read(0, maxLines+1), failure: "offset is 0 and limit 2001: want lines from 1, and at most 2000 of them"},
		"fewer than none":    {content: "a", do: read(0, -1), failure: "limit -1"},
		"before the first":   {content: "a", do: read(-1, 0), failure: "offset is -1"},
		"of another kind":    {content: "GIF89a\x00", do: read(0, 0), failure: "f is not text (it looks like image/gif)"},
		"cut at once":        {content: "text", cut: true, do: read(0, 0), failure: "EOF"},
		"cut later":          {content: strings.Repeat("a\n", 600), cut: true, do: read(0, 0), failure: "EOF"},
		"a part":             {content: strings.Repeat("a\n", 8<<20), do: read(1, 1), text: "a", note: "lines 1 to 1; there are more: go on with offset 2"},
		"a picture":          {content: small, do: read(0, 0), media: 1},
		"a photo":            {content: file.String(), do: read(0, 0), media: 1},
		"the largest":        {content: padded(maxKeptPicture), do: read(0, 0), media: 2},
		"larger":             {content: padded(maxKeptPicture + 1), do: read(0, 0), failure: "f is a picture of more than 8 MiB"},
		"a picture, cut":     {content: padded(1000), cut: true, do: read(0, 0), failure: "EOF"},
		"nothing to replace": {content: "a", do: edit("", "x", false), failure: "there is nothing to replace"},
		"nothing changes":    {content: "a", do: edit("a", "a", false), failure: "there is nothing to replace"},
		"one":                {content: "ab", do: edit("a", "x", false), note: "replaced 1 occurrence in f", written: "xb"},
		"one of all":         {content: "ab", do: edit("a", "", true), note: "replaced 1 occurrence in f", written: "b"},
		"two":                {content: "aab", do: edit("a", "x", false), failure: "old_str occurs 2 times in f, so nothing was changed"},
		"all of two":         {content: "aab", do: edit("a", "x", true), note: "replaced 2 occurrences in f", written: "xxb"},
		"none":               {content: "aab", do: edit("c", "x", true), failure: "old_str does not occur in f"},
		"cut before an edit": {content: "ab", cut: true, do: edit("a", "x", false), failure: "EOF"},
		"not writable":       {content: "ab", refuses: true, do: edit("a", "x", false), failure: "write"},
		"as large":           {content: of(maxEditable), do: edit("a", "x", false), note: "replaced 1 occurrence in f", written: "x" + of(maxEditable)[1:]},
		"too large":          {content: of(maxEditable + 1), do: edit("a", "x", false), failure: "f has more than 4 MiB"},
		"much too large":     {content: of(2 * maxEditable), do: edit("a", "x", false), failure: "f has more than 4 MiB"},
		"grows as large":     {content: of(maxEditable - 1), do: edit("a", "xy", false), note: "replaced 1 occurrence in f", written: "xy" + of(maxEditable - 1)[1:]},
		"grows too large":    {content: of(maxEditable - 1), do: edit("a", "xyz", false), failure: "f would have more than 4 MiB, so nothing was changed"},
		"a write":            {content: "a", do: write, note: "wrote 4 bytes to f", written: "text"},
		"a refused write":    {content: "a", refuses: true, do: write, failure: "write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &played{}
				p.file.content, p.file.cut, p.file.refuses = tt.content, tt.cut, tt.refuses
				c := newCall()
				c.box = newHeld(p.sandbox(t), true)
				err := tt.do(t.Context(), c)
				if (err == nil) != (tt.failure == "") || err != nil && !strings.Contains(err.Error(), tt.failure) {
					t.Errorf("got error %v, want %q", err, tt.failure)
				}
				if text, notes := strings.Join(c.answer.text, "|"), strings.Join(c.answer.notes, "|"); text != tt.text || notes != tt.note || len(c.answer.media) != tt.media {
					t.Errorf("got %.100q with %q and %d media, want %q with %q and %d", text, notes, len(c.answer.media), tt.text, tt.note, tt.media)
				}
				if p.file.written != tt.written {
					t.Errorf("wrote %.100q, want %.100q", p.file.written, tt.written)
				}
				if synctest.Wait(); p.file.requests.Load() != 0 {
					t.Error("a request goes on")
				}
			})
		})
	}
}

// TestPlayedFilesThatAreMissing checks that a missing file is an error.
func TestPlayedFilesThatAreMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCall()
		c.box = newHeld((&played{}).sandbox(t), true)
		for name, err := range map[string]error{
			"read": readFile(t.Context(), c, readArguments{Path: "g"}), "edit": editFile(t.Context(), c, editArguments{Path: "g", Old: "a"}), "write": writeFile(t.Context(), c, writeArguments{Path: "g"}),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of a missing file: got error %v", name, err)
			}
		}
	})
}

// TestCodeThatCannotCallTools checks the errors of code whose tools are not there, and that other code can then run.
func TestCodeThatCannotCallTools(t *testing.T) {
	t.Parallel()
	gone, broken := errors.New("the client has gone"), errors.New("it did not start")
	starts := func() *proxied { return &proxied{began: make(chan struct{}), ended: make(chan struct{})} }
	there := func() *proxied { return &proxied{began: closedChannel(), ended: make(chan struct{})} }
	fails := func() *proxied { return &proxied{began: closedChannel(), ended: make(chan struct{}), err: broken} }
	for name, tt := range map[string]struct {
		allow   []string
		server  func() *proxied
		waits   bool // for other code
		want    error
		failure string
	}{
		"an unknown tool":     {allow: []string{"b.x"}, server: there, failure: "no server has the tools b.x"},
		"no server":           {server: fails, want: broken, failure: "the server a: "},
		"the server is slow":  {server: starts, want: gone},
		"other code runs":     {server: there, waits: true, want: gone},
		"there is no session": {server: there, want: sandbox.ErrNeedsWebsocket}, // of the kernel
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCall()
				c.server.config = Config{Proxies: []Proxy{{Name: "a"}}, AllowTools: tt.allow}
				c.server.proxies = newProxies(&c.server.config)
				defer c.server.proxies.close()
				c.server.proxies.servers["a"] = tt.server()
				c.box = newHeld((&played{}).sandbox(t), true)
				if tt.waits {
					must.Do(t, c.box.codeTurn.acquire(t.Context()))
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(gone) })
				execution, err := c.execute(ctx, "code", io.Discard)
				if execution != nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.failure) {
					t.Errorf("got %+v and error %v, want %v with %q", execution, err, tt.want, tt.failure)
				}
				if tt.waits {
					c.box.codeTurn.release()
				}
				if wantFree(t, c.box, false); c.box.code != nil {
					t.Error("a run was begun")
				}
				<-time.After(time.Minute)
			})
		})
	}
}
