package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
)

// service is an E2B-style service for the scripts: the control plane in memory,
// and one "sandbox" that runs commands on this machine, in its own directory.
// The templates named below make it fail in the ways that scripts need.
type service struct {
	processconnect.UnimplementedProcessHandler
	filesystemconnect.UnimplementedFilesystemHandler
	*httptest.Server
	t    testing.TB
	home string

	mu        sync.Mutex
	sandboxes map[string]*fakeSandbox
	created   int
	askedOnce sync.Once
	killed    []string
	keyName   string
	snapshots []fakeSnapshot
	public    bool     // whether the only template is public
	named     []string // tags of the template, besides default
	processes map[uint32]*fakeProcess
	hang      chan struct{} // closed at the end, so that handlers that hang return
	killAsked chan struct{} // closed by the first kill of an immortal or tenacious sandbox
	killNow   chan struct{} // closed by a test that lets tenacious sandboxes go
}

type fakeSandbox struct {
	ID         string            `json:"sandboxID"`
	TemplateID string            `json:"templateID"`
	ClientID   string            `json:"clientID"`
	Alias      string            `json:"alias"`
	State      string            `json:"state"`
	StartedAt  time.Time         `json:"startedAt"`
	EndAt      time.Time         `json:"endAt"`
	CPUCount   int               `json:"cpuCount"`
	MemoryMB   int               `json:"memoryMB"`
	DiskSizeMB int               `json:"diskSizeMB"`
	Envd       string            `json:"envdVersion"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Envs       map[string]string `json:"-"`
	PauseMode  string            `json:"pauseMode,omitempty"`
	Lifecycle  *fakeLifecycle    `json:"lifecycle,omitempty"`
}

type fakeLifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

type fakeProcess struct {
	stdin io.WriteCloser
	pid   int
}

const serviceKey = "e2b_0123456789abcdef0123456789abcdef01234567"

func newService(t testing.TB) *service {
	s := &service{
		t: t, home: t.TempDir(), sandboxes: map[string]*fakeSandbox{}, processes: map[uint32]*fakeProcess{},
		hang: make(chan struct{}), killAsked: make(chan struct{}), killNow: make(chan struct{}),
	}
	mux := http.NewServeMux()
	for _, v := range []string{"", "/v2"} {
		mux.HandleFunc("POST "+v+"/sandboxes", s.create)
		mux.HandleFunc("GET "+v+"/sandboxes", s.list)
		mux.HandleFunc("POST "+v+"/sandboxes/{id}/connect", s.sandbox((*service).connect))
	}
	mux.HandleFunc("GET /sandboxes/{id}", s.sandbox((*service).get))
	mux.HandleFunc("DELETE /sandboxes/{id}", s.sandbox((*service).kill))
	mux.HandleFunc("/api-keys", s.keys)
	mux.HandleFunc("/api-keys/{id}", s.keys)
	mux.HandleFunc("POST /sandboxes/{id}/pause", s.sandbox((*service).pause))
	mux.HandleFunc("POST /sandboxes/{id}/refreshes", s.sandbox(func(*service, http.ResponseWriter, *http.Request, *fakeSandbox) {}))
	mux.HandleFunc("POST /sandboxes/{id}/timeout", s.sandbox(func(*service, http.ResponseWriter, *http.Request, *fakeSandbox) {}))
	s.handleTemplates(mux)
	control := s.authenticate(mux)

	daemon := http.NewServeMux()
	daemon.Handle(processconnect.NewProcessHandler(s))
	daemon.Handle(filesystemconnect.NewFilesystemHandler(s))
	daemon.HandleFunc("GET /files", s.readFile)
	daemon.HandleFunc("POST /files", s.writeFile)
	interpreter := http.NewServeMux()
	interpreter.HandleFunc("GET /contexts", s.contexts)
	interpreter.HandleFunc("POST /execute", s.execute)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("E2b-Sandbox-Id") == "" {
			control.ServeHTTP(w, r)
			return
		}
		switch r.Header.Get("E2b-Sandbox-Port") {
		case "49983":
			daemon.ServeHTTP(w, r)
		case "49999":
			interpreter.ServeHTTP(w, r)
		default: // also 8888: code is sent over HTTP
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprintf(w, `{"sandboxId":%q,"message":"The sandbox is running but port is not open","port":%s}`, r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port"))
		}
	}))
	t.Cleanup(func() {
		close(s.hang)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *service) env() []string {
	return []string{"E2B_API_KEY=" + serviceKey, "E2B_API_URL=" + s.URL, "E2B_SANDBOX_URL=" + s.URL}
}

func problem(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", "request-1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": status, "message": message})
}

func (s *service) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-API-KEY") {
		case serviceKey:
			next.ServeHTTP(w, r)
		case "limited":
			problem(w, http.StatusTooManyRequests, "too many requests")
		default:
			problem(w, http.StatusUnauthorized, "Invalid API key")
		}
	})
}

func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var request struct {
		TemplateID string            `json:"templateID"`
		Timeout    int               `json:"timeout"`
		Metadata   map[string]string `json:"metadata"`
		EnvVars    map[string]string `json:"envVars"`
		AutoPause  *bool             `json:"autoPause"`
		Memory     *bool             `json:"autoPauseMemory"`
		AutoResume struct{ Enabled bool }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	switch request.TemplateID {
	case "unknown":
		problem(w, http.StatusNotFound, "template 'unknown' not found")
		return
	case "forbidden":
		problem(w, http.StatusForbidden, "not yours")
		return
	case "paused":
		problem(w, http.StatusConflict, "it is being paused")
		return
	case "broken":
		problem(w, http.StatusInternalServerError, "\x1b[31mbroken")
		return
	case "forger":
		problem(w, http.StatusInternalServerError, "100% broken\n::set-env name=PATH::/tmp\n \u00a0::add-mask::a ##[group]b\r::error::c")
		return
	case "picky":
		if len(request.Metadata) > 1 {
			problem(w, http.StatusBadRequest, "metadata has too many keys")
			return
		}
	case "hangs":
		select { // afterwards it creates one for a client that no longer waits
		case <-time.After(time.Second):
		case <-s.hang:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created++
	sb := &fakeSandbox{
		ID: fmt.Sprintf("i%020d", s.created), TemplateID: "t" + request.TemplateID, ClientID: "c", Alias: request.TemplateID,
		State: "running", StartedAt: time.Date(2026, 11, 21, 10, 0, s.created, 0, time.UTC),
		EndAt:    time.Date(2026, 11, 21, 10, 0, s.created+request.Timeout, 0, time.UTC),
		CPUCount: 2, MemoryMB: 512, DiskSizeMB: 1024, Envd: "0.6.13", Metadata: request.Metadata, Envs: request.EnvVars,
	}
	if request.AutoPause != nil {
		sb.Lifecycle = &fakeLifecycle{OnTimeout: "kill", AutoResume: request.AutoResume.Enabled}
		if *request.AutoPause {
			sb.Lifecycle.OnTimeout = "pause"
		}
		if request.Memory != nil {
			sb.Lifecycle.OnTimeout += fmt.Sprintf(" (memory %v)", *request.Memory)
		}
	}
	s.sandboxes[sb.ID] = sb
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(sb)
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	states := r.URL.Query().Get("state")
	pairs, _ := url.QueryUnescape(r.URL.Query().Get("metadata")) // clients escape each key and value once more
	metadata, _ := url.ParseQuery(pairs)
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*fakeSandbox{}
	for i := s.created; i > 0; i-- {
		if sb := s.sandboxes[fmt.Sprintf("i%020d", i)]; sb != nil && (states == "" || strings.Contains(states, sb.State)) && sb.has(metadata) {
			all = append(all, sb)
		}
	}
	_ = json.NewEncoder(w).Encode(all)
}

// has reports whether the metadata of the sandbox has these pairs.
func (sb *fakeSandbox) has(pairs url.Values) bool {
	for key := range pairs {
		if value, ok := sb.Metadata[key]; !ok || value != pairs.Get(key) {
			return false
		}
	}
	return true
}

func (s *service) sandbox(handle func(*service, http.ResponseWriter, *http.Request, *fakeSandbox)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		sb := s.sandboxes[r.PathValue("id")]
		s.mu.Unlock()
		if sb == nil {
			problem(w, http.StatusNotFound, fmt.Sprintf("sandbox %q not found", r.PathValue("id")))
			return
		}
		handle(s, w, r, sb)
	}
}

func (s *service) get(w http.ResponseWriter, _ *http.Request, sb *fakeSandbox) {
	_ = json.NewEncoder(w).Encode(sb)
}

func (s *service) connect(w http.ResponseWriter, r *http.Request, sb *fakeSandbox) {
	var request struct {
		Timeout int
		Memory  *bool
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sb.Alias == "wedged" && request.Memory == nil:
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"code":409,"message":"its agent did not answer","error_code":"sandbox_snapshot_guest_agent_unresponsive"}`)
		return
	case sb.State == "paused":
		sb.State, sb.PauseMode = "running", ""
		sb.EndAt = sb.StartedAt.Add(time.Duration(request.Timeout) * time.Second)
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(sb)
}

// keys knows one key, "k1", unless it was deleted.
func (s *service) keys(w http.ResponseWriter, r *http.Request) {
	const key = `{"id":"k1","name":%q,"createdAt":"2026-11-21T10:00:00Z","mask":{"prefix":"e2b_","valueLength":40,"maskedValuePrefix":"12","maskedValueSuffix":"cdef"}%s}`
	s.mu.Lock()
	defer s.mu.Unlock()
	var request struct{ Name string }
	_ = json.NewDecoder(r.Body).Decode(&request) // only some have a body
	id := r.PathValue("id")
	switch {
	case id != "" && (id != "k1" || s.keyName == ""):
		problem(w, http.StatusNotFound, "no such key")
	case r.Method == http.MethodPatch:
		s.keyName = request.Name
	case r.Method == http.MethodDelete:
		s.keyName = ""
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
		s.keyName = request.Name
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, key, s.keyName, `,"key":"e2b_12ffcdef"`)
	case s.keyName == "":
		_, _ = io.WriteString(w, "[]")
	default:
		fmt.Fprintf(w, "["+key+"]", s.keyName, `,"lastUsed":"2026-11-21T11:00:00Z"`)
	}
}

func (s *service) pause(w http.ResponseWriter, r *http.Request, sb *fakeSandbox) {
	var request struct {
		Memory              *bool
		RequireHealthyGuest bool
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sb.State == "paused":
		problem(w, http.StatusConflict, fmt.Sprintf("sandbox %q is already paused", sb.ID))
		return
	case request.RequireHealthyGuest && sb.Alias == "wedged":
		problem(w, http.StatusServiceUnavailable, "its agent does not answer")
		return
	}
	sb.State, sb.PauseMode = "paused", "full"
	if request.Memory != nil && !*request.Memory {
		sb.PauseMode = "filesystem"
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *service) kill(w http.ResponseWriter, _ *http.Request, sb *fakeSandbox) {
	if sb.Alias == "immortal" || sb.Alias == "tenacious" {
		s.askedOnce.Do(func() { close(s.killAsked) })
		release := s.killNow
		if sb.Alias == "immortal" {
			release = nil // it is not released
		}
		select {
		case <-release:
		case <-s.hang:
			return
		}
	}
	s.mu.Lock()
	delete(s.sandboxes, sb.ID)
	s.killed = append(s.killed, sb.ID)
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// Start runs the process on this machine.
func (s *service) Start(ctx context.Context, r *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	if name := user(r.Header()); name != "user" && name != "root" {
		return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid username: '%s'", name))
	}
	config := r.Msg.GetProcess()
	args := config.GetArgs()
	if len(args) > 0 && args[0] == "-l" {
		args = args[1:] // without this machine's shell profile
	}
	cmd := exec.CommandContext(ctx, config.GetCmd(), args...)
	cmd.Dir = filepath.Join(s.home, config.GetCwd())
	cmd.Env = []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "USER=" + user(r.Header())}
	envs := config.GetEnvs()
	s.mu.Lock()
	if sb := s.sandboxes[r.Header().Get("E2b-Sandbox-Id")]; sb != nil {
		envs = maps.Clone(sb.Envs)
		if envs == nil {
			envs = map[string]string{}
		}
		maps.Copy(envs, config.GetEnvs())
	}
	s.mu.Unlock()
	for k, v := range envs {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var sending sync.Mutex
	send := func(event *process.ProcessEvent) error {
		sending.Lock()
		defer sending.Unlock()
		return stream.Send(&process.StartResponse{Event: event})
	}
	cmd.Stdout = eventWriter{func(p []byte) error {
		return send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: p}}}})
	}}
	cmd.Stderr = eventWriter{func(p []byte) error {
		return send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: p}}}})
	}}
	cmd.WaitDelay = time.Second
	var stdin io.WriteCloser
	if r.Msg.Stdin == nil || r.Msg.GetStdin() {
		var err error
		if stdin, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	sending.Lock() // output waits until the start event is sent
	err := cmd.Start()
	if err != nil {
		sending.Unlock()
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	pid := uint32(cmd.Process.Pid)
	s.mu.Lock()
	s.processes[pid] = &fakeProcess{stdin: stdin, pid: cmd.Process.Pid}
	s.mu.Unlock()
	sendErr := stream.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}})
	sending.Unlock()
	err = cmd.Wait()
	if sendErr != nil {
		return sendErr
	}
	end := &process.ProcessEvent_EndEvent{ExitCode: int32(cmd.ProcessState.ExitCode()), Exited: true, Status: cmd.ProcessState.String()}
	if err != nil {
		text := err.Error()
		end.Error = &text
	}
	return send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
}

type eventWriter struct{ send func([]byte) error }

func (w eventWriter) Write(p []byte) (int, error) { return len(p), w.send(p) }

func user(h http.Header) string {
	r := http.Request{Header: h}
	if name, _, ok := r.BasicAuth(); ok {
		return name
	}
	return "user"
}

func (s *service) process(selector *process.ProcessSelector) (*fakeProcess, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.processes[selector.GetPid()]; p != nil {
		return p, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, errors.New("no such process"))
}

func (s *service) SendInput(_ context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	p, err := s.process(r.Msg.GetProcess())
	if err == nil {
		_, err = p.stdin.Write(r.Msg.GetInput().GetStdin())
	}
	return connect.NewResponse(&process.SendInputResponse{}), err
}

func (s *service) CloseStdin(_ context.Context, r *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	p, err := s.process(r.Msg.GetProcess())
	if err == nil {
		_ = p.stdin.Close()
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), err
}

func (s *service) SendSignal(_ context.Context, r *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	p, err := s.process(r.Msg.GetProcess())
	if err == nil {
		if found, findErr := os.FindProcess(p.pid); findErr == nil {
			_ = found.Signal(syscall.Signal(r.Msg.GetSignal()))
		}
	}
	return connect.NewResponse(&process.SendSignalResponse{}), err
}

// path keeps the paths of a script's requests inside the sandbox's directory.
func (s *service) path(r *http.Request) string {
	return filepath.Join(s.home, r.URL.Query().Get("path"))
}

// Stat describes a file of the sandbox's directory.
func (s *service) Stat(_ context.Context, r *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	name := filepath.Join(s.home, r.Msg.GetPath())
	info, err := os.Stat(name)
	if err != nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("path does not exist"))
	}
	kind := filesystem.FileType_FILE_TYPE_FILE
	if info.IsDir() {
		kind = filesystem.FileType_FILE_TYPE_DIRECTORY
	}
	entry := &filesystem.EntryInfo{Name: info.Name(), Path: name, Type: kind, Size: info.Size(), Mode: uint32(info.Mode().Perm())}
	return connect.NewResponse(&filesystem.StatResponse{Entry: entry}), nil
}

func (s *service) readFile(w http.ResponseWriter, r *http.Request) {
	file, err := os.Open(s.path(r))
	if err != nil {
		problem(w, http.StatusNotFound, "path does not exist")
		return
	}
	defer file.Close()
	_, _ = io.Copy(w, file)
}

func (s *service) writeFile(w http.ResponseWriter, r *http.Request) {
	name := s.path(r)
	var file *os.File
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		file, err = os.Create(name)
	}
	if err == nil {
		defer file.Close()
		_, err = io.Copy(file, r.Body)
	}
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	_ = json.NewEncoder(w).Encode([]map[string]string{{"name": filepath.Base(name), "path": name, "type": "file"}})
}

func (s *service) contexts(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `[{"id":"context-1","language":"python","cwd":"/home/user"}]`)
}

// hostileText sets a title, writes the clipboard, clears the screen, asks the
// terminal for an answer, rings the bell, and reverses the direction of text.
const hostileText = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x1b\\\u009b2J\x1b[6n\x1b[1;31mred\x1b[0m\x00\u202e\t100%\r"

// execute answers according to the code, which is not run.
func (s *service) execute(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Code string            `json:"code"`
		Envs map[string]string `json:"env_vars"`
	}
	_ = json.NewDecoder(r.Body).Decode(&request)
	line := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	type object map[string]any
	if strings.HasSuffix(request.Code, "_e2bctl_end')(True, False)") { // the end of a program that has ended
		line(object{"type": "result", "text": "0", "is_main_result": true})
		line(object{"type": "end_of_execution"})
		return
	}
	line(object{"type": "stdout", "text": "printed\n"})
	line(object{"type": "stderr", "text": "warned\n"})
	switch strings.TrimSpace(request.Code) {
	case "value":
		line(object{"type": "result", "text": "42", "is_main_result": true})
	case "plot":
		line(object{"type": "result", "text": "<Figure>", "png": "iVBORw0KGgo=", "is_main_result": false})
	case "env":
		line(object{"type": "result", "text": fmt.Sprint(request.Envs), "is_main_result": true})
	case "unstartable":
		line(object{"type": "error", "name": "KernelStartError", "value": "no memory\n", "traceback": "KernelStartError: no memory\n"})
	case "raise":
		line(object{"type": "error", "name": "ValueError", "value": "no", "traceback": "Traceback: ValueError: no"})
	case "hostile": // sequences that take over a terminal, also split over two lines of the stream
		for _, stream := range []string{"stdout", "stderr"} {
			line(object{"type": stream, "text": hostileText + "\x1b"})
			line(object{"type": stream, "text": "[2Jend\x1b[3"})
		}
		line(object{"type": "result", "text": hostileText + "1", "is_main_result": true})
		line(object{"type": "error", "name": "ValueError", "value": "no", "traceback": hostileText + "2"})
	case "hang":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	line(object{"type": "end_of_execution"})
}

// closedAddress is an address without a listener, because only root could
// listen there. A port that was free a moment ago may belong to another program
// by now.
const closedAddress = "http://127.0.0.1:1"
