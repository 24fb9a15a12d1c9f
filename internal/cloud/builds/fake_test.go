package builds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world contains the fake sandboxes, and records their use.
type world struct {
	processconnect.UnimplementedProcessHandler
	mu      sync.Mutex
	ran     []string                             // lines that sandboxes ran, in the order in which the lines began
	running int                                  // number of sandboxes that run now
	most    int                                  // maximum number of sandboxes that ran at once
	block   chan struct{}                        // closed to end the line "block"
	blocked chan string                          // receives the ids of sandboxes that begin to wait
	fails   struct{ launch, beside, save error } // beside: a launch while another sandbox runs
	size    int                                  // number of bytes of each checkpoint
	begun   []string                             // images with which sandboxes began; "": a built-in template
	asked   []engine.Resources                   // resources that sandboxes were to have
	saved   int                                  // number of checkpoints
	sharing func() layers.Sharing                // nil: sandboxes begin with copies
	left    map[string]int                       // number of calls of a kind up to the one that fails; nil: none does
}

func newWorld() *world {
	return &world{block: make(chan struct{}), blocked: make(chan string, 100), size: 10}
}

type fakeSandbox struct {
	world *world
	id    string
	spec  lifecycle.Spec
	envd  *httptest.Server
	once  sync.Once
	done  chan struct{}
}

func (w *world) launch(_ context.Context, spec lifecycle.Spec) (Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails.launch != nil {
		return nil, w.fails.launch
	}
	if w.fails.beside != nil && w.running > 0 {
		return nil, w.fails.beside
	}
	if w.running++; spec.Template.Image != nil {
		w.begun = append(w.begun, spec.Template.Image.Reference)
	} else {
		w.begun = append(w.begun, "")
	}
	w.most = max(w.most, w.running)
	w.asked = append(w.asked, spec.Template.Resources)
	s := &fakeSandbox{world: w, id: spec.ID, spec: spec, done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(&fakeProcesses{world: w, sandbox: s}))
	mux.HandleFunc("/local/", s.building)
	s.envd = httptest.NewServer(mux)
	return s, nil
}

// fail reports whether a call of a kind is the one that fails.
func (w *world) fail(kind string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, counted := w.left[kind]
	if counted {
		w.left[kind]--
	}
	return n == 1
}

// building answers the routes for builds, and records the requests. An archive that a sandbox packs
// contains the name of the sandbox's image.
func (s *fakeSandbox) building(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	did := strings.TrimPrefix(r.URL.Path, "/local/")
	if s.world.fail("request") {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"message":"the disk is full"}`)
		return
	}
	switch did {
	case "pack":
		if query.Get("source") == "/missing" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"message":"'/missing' is not there"}`)
			return
		}
		_, _ = io.WriteString(w, s.spec.Template.Image.Reference+" "+query.Get("source"))
		return
	case "place":
		archive, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		did += fmt.Sprintf(" %s|%s|%s|%s|%s of %s", query.Get("source"), query.Get("target"), query.Get("owner"), query.Get("mode"), query.Get("user"), archive)
	case "directory":
		did += " " + query.Get("path") + " " + query.Get("user")
	case "account":
		did += " " + query.Get("name") + " " + query.Get("sudo")
	}
	s.world.mu.Lock()
	s.world.ran = append(s.world.ran, did)
	s.world.mu.Unlock()
	home := "/home/made"
	if query.Get("name") == "homeless" {
		home = ""
	}
	fmt.Fprintf(w, `{"changed":%t,"home":%q}`, query.Get("path") != "/there", home)
}

func (s *fakeSandbox) Dial(ctx context.Context, _ int) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.envd.Listener.Addr().String())
}

func (s *fakeSandbox) Checkpoint(_ context.Context, dir, _ string, share bool) (bool, error) {
	if err := s.world.fails.save; err != nil {
		return false, err
	}
	s.world.mu.Lock()
	s.world.saved++
	s.world.mu.Unlock()
	return share, os.WriteFile(filepath.Join(dir, "files"), make([]byte, s.world.size), 0o600)
}

func (s *fakeSandbox) Done() <-chan struct{} { return s.done }

func (s *fakeSandbox) Err() error {
	select {
	case <-s.done:
		return errors.New("out of memory")
	default:
		return nil
	}
}

// end ends the sandbox as if it had died.
func (s *fakeSandbox) end() {
	s.once.Do(func() {
		close(s.done)
		s.envd.CloseClientConnections()
	})
}

func (s *fakeSandbox) Close() error {
	s.end()
	s.envd.Close()
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.world.running--
	return nil
}

// fakeProcesses runs a few commands, and ignores all others. print writes its words as a line, part
// without an end of line, and warn to standard error. who writes its user and directory. fail
// fails, exit fails without output, third fails until its third run, and after fails until the command of its
// words has run. refuse is not started, and flood writes much output. sleep never ends, block waits for the test, and die ends the sandbox.
type fakeProcesses struct {
	processconnect.UnimplementedProcessHandler
	world   *world
	sandbox *fakeSandbox
}

func (p *fakeProcesses) Start(ctx context.Context, r *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	args := r.Msg.GetProcess().GetArgs()
	line := args[len(args)-1]
	p.world.mu.Lock()
	p.world.ran = append(p.world.ran, line)
	runs := 0
	for _, ran := range p.world.ran {
		if ran == line {
			runs++
		}
	}
	verb, words, _ := strings.Cut(line, " ")
	early := !slices.Contains(p.world.ran, words)
	p.world.mu.Unlock()
	send := func(e *process.ProcessEvent) { _ = stream.Send(&process.StartResponse{Event: e}) }
	data := func(stdout, stderr string) {
		event := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(stdout)}}
		if stderr != "" {
			event.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte(stderr)}
		}
		send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: event}})
	}
	send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}})
	end := &process.ProcessEvent_EndEvent{Exited: true}
	switch verb {
	case "print":
		data(words+"\n", "")
	case "part": // of a line
		data(words, "")
	case "warn":
		data("", words)
	case "who":
		user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth()
		data(user+" in "+r.Msg.GetProcess().GetCwd()+" with "+r.Msg.GetProcess().GetEnvs()["PROC_ROOT"]+"\n", "")
	case "fail":
		data("", "broken\n \n")
		end.ExitCode, end.Error = 3, proto.String("exit status 3")
	case "exit":
		end.ExitCode = 4
	case "third":
		if runs < 3 {
			end.ExitCode = 1
		}
	case "after":
		if early {
			end.ExitCode = 1
		}
	case "refuse":
		return connect.NewError(connect.CodeUnauthenticated, errors.New("invalid username: 'nosuch'"))
	case "flood":
		for range 100 {
			data(strings.Repeat(strings.Repeat("x", 50)+"\n", 400), "")
		}
	case "die":
		p.sandbox.end()
	case "sleep":
		<-ctx.Done()
	case "block":
		p.world.blocked <- p.sandbox.id
		select {
		case <-p.world.block:
		case <-ctx.Done():
		}
	}
	send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
	return nil
}

// server is a builder in a durable store.
type server struct {
	*Builder
	all    *templates.Registry
	layers *layers.Set
	store  *store.Store
	dir    string
}

func (w *world) serve(t *testing.T, dir string, change ...func(*Options)) *server {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	quiet := slog.New(slog.DiscardHandler)
	s := &server{store: st, layers: layers.Open(layers.Options{Store: st, Sharing: w.sharing}), dir: dir}
	o := Options{Store: st, Layers: s.layers, Cache: OpenCache(st, s.layers, quiet), Launch: w.launch, Describe: func(name engine.Name, asked engine.Resources) string {
		return fmt.Sprintf("%s sandboxes have %+v", name, asked)
	}, Path: "/bin"}
	s.all = templates.Open(templates.Options{Store: st, Layers: s.layers})
	o.Templates = s.all
	for _, c := range change {
		c(&o)
	}
	s.Builder = New(o)
	t.Cleanup(func() {
		s.Close()
		s.balanced(t, w)
		s.kill(t)
	})
	return s
}

// balanced fails the test if closed builders have left a sandbox, a slot, an open archive, or a
// holder of layers that neither a template nor the cache names.
func (s *server) balanced(t *testing.T, w *world) {
	t.Helper()
	if w.running != 0 || len(s.slots) != 0 {
		t.Errorf("%d sandboxes are left and %d slots taken", w.running, len(s.slots))
	}
	named := map[string]int{}
	for _, made := range s.all.All() {
		for _, build := range made.Builds {
			for _, id := range build.Layers {
				named[id]++
			}
		}
	}
	for _, entry := range s.options.Cache.entries {
		for _, id := range entry.State.Layers {
			named[id]++
		}
	}
	s.layers.Needs("") // waits until earlier calls have taken effect
	for each := reflect.ValueOf(s.layers).Elem().FieldByName("layers").MapRange(); each.Next(); {
		id := each.Key().String()
		if n := int(each.Value().Elem().FieldByName("holders").Int()); n != named[id] {
			t.Errorf("layer %s has %d holders, want %d", id, n, named[id])
		}
	}
	for _, name := range fdtest.Open(t, s.dir) {
		if strings.Contains(name, "/"+archiveName) {
			t.Errorf("the archive %s is open", name)
		}
	}
}

// kill ends a server as if it had been killed: it writes nothing more to its store.
func (s *server) kill(t *testing.T) {
	t.Helper()
	if err := s.store.Close(); err != nil {
		t.Error(err)
	}
	s.Close()
}

type ids struct{ template, build string }

func (s *server) request(t *testing.T, name string, tags ...string) ids {
	t.Helper()
	made, build, err := s.Request(templates.ParseReference(name), tags, templates.Build{})
	must.Do(t, err)
	return ids{made.ID, build.ID}
}

// begin starts a build of RUN steps.
func (s *server) begin(t *testing.T, id ids, lines ...string) {
	t.Helper()
	must.Do(t, s.Start(id.template, id.build, running(lines...)))
}

func running(lines ...string) Spec {
	spec := Spec{FromImage: "e2bdev/base"}
	for _, line := range lines {
		spec.Steps = append(spec.Steps, Step{Type: "RUN", Args: []string{line}})
	}
	return spec
}

// end waits until all builds have ended, and returns the status and the log of one build.
func (s *server) end(t *testing.T, id ids) (Status, string) {
	t.Helper()
	s.work.Wait()
	return s.now(t, id)
}

func (s *server) now(t *testing.T, id ids) (Status, string) {
	t.Helper()
	status, ok := s.Status(id.template, id.build)
	if !ok {
		t.Fatalf("build %s is not known", id.build)
	}
	var log strings.Builder
	for _, e := range status.Log(Select{Level: slog.LevelDebug, Limit: 1000}) {
		fmt.Fprintf(&log, "%s %v %s\n", e.Step, e.Level, e.Message)
	}
	return status, log.String()
}

// kept returns the number of layers in the store.
func (s *server) kept(t *testing.T) int {
	t.Helper()
	all, err := s.store.Records(store.Layers)
	must.Do(t, err)
	return len(all)
}

// fakeImages contains images, keyed by reference.
type fakeImages struct {
	all    map[string]image.Image
	layers *layers.Set
	mu     sync.Mutex // guards logins
	logins []*image.Auth
	size   int           // of each layer, in bytes
	fails  error         // the error of the next calls; nil: they look in all
	stop   chan struct{} // nil, or the calls wait until it is closed
}

func (f *fakeImages) Pull(ctx context.Context, reference string, auth *image.Auth, progress func(string)) (image.Image, error) {
	f.mu.Lock()
	f.logins = append(f.logins, auth)
	f.mu.Unlock()
	if f.stop != nil {
		select {
		case <-f.stop:
		case <-ctx.Done():
			return image.Image{}, ctx.Err()
		}
	}
	if f.fails != nil {
		return image.Image{}, f.fails
	}
	found, ok := f.all[reference]
	if !ok {
		return image.Image{}, errors.New("there is no such image")
	}
	progress("pulling " + reference)
	id, err := f.layers.Add(func(dir string, share bool) (bool, error) {
		return share, os.WriteFile(filepath.Join(dir, "files"), make([]byte, f.size), 0o600)
	})
	found.Layers = []string{id}
	return found, err
}
