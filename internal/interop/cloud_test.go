package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Shared parts are made for the first test that asks for them, and ended by TestMain: the
// command, a cloud and images take more work than most tests with them.
var (
	buildOnce  = sync.OnceValues(build)
	mirrorOnce = sync.OnceValues(startMirror)
	sharedOnce = sync.OnceValues(startShared)

	// endings end the shared parts, the last first.
	endings struct {
		mu   sync.Mutex
		list []func() error
	}
)

// errLacking means that this machine lacks something that the tests need.
var errLacking = errors.New("the tests need more than this machine has")

func TestMain(m *testing.M) { goleak.VerifyTestMain(ending{m}) }

// ending runs the tests and then ends their shared parts, before the check for leftovers.
type ending struct{ *testing.M }

func (e ending) Run() int {
	code := e.M.Run()
	for _, end := range slices.Backward(endings.list) {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "end what the tests shared:", err)
			code = 1
		}
	}
	return code
}

// atEnd calls f when all tests have ended.
func atEnd(f func() error) {
	endings.mu.Lock()
	defer endings.mu.Unlock()
	endings.list = append(endings.list, f)
}

// ready returns a part that t shares with others. It skips t if this machine lacks
// something for it, as [pinned.Skip] does.
func ready[T any](t *testing.T, once func() (T, error)) T {
	t.Helper()
	if runtime.GOOS != "linux" {
		pinned.Skip(t, "the local cloud runs on Linux only")
	}
	pinned.Program(t, "busybox", "busybox-static") // clouds and clients need it, so it is looked for before anything is built
	for _, set := range Sets() {
		set.Find(t)
	}
	value, err := once()
	if errors.Is(err, errLacking) {
		pinned.Skip(t, "%v", err)
	}
	must.Do(t, err)
	return value
}

// sharedCloud returns the variables of the cloud that is shared by all clients that need
// no flags of their own: if they disturb each other, their tests fail. It has the
// template that SDKs ask for to have MCP servers.
func sharedCloud(t *testing.T) []string {
	t.Helper()
	return ready(t, sharedOnce)
}

func startShared() ([]string, error) {
	program, err := buildOnce()
	if err != nil {
		return nil, err
	}
	mirror, err := mirrorOnce()
	if err != nil {
		return nil, err
	}
	dir, err := temporary()
	if err != nil {
		return nil, err
	}
	service := newHostService()
	atEnd(service.end)
	s, err := start(program, dir, filepath.Join(dir, "state"), "--registry-mirror", "docker.io="+mirror, "--host-service", service.flag())
	if err != nil {
		return nil, err
	}
	s.env = append(s.env, service.variable())
	atEnd(func() error {
		err := s.end()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, s.stderr)
		}
		return err
	})
	return s.env, errors.Join(buildGateway(s.env), warmUp(s.env))
}

// hostService is a service of this machine that sandboxes may reach by the name machine.
type hostService struct{ server *httptest.Server }

func newHostService() hostService {
	return hostService{httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "from the machine")
	}))}
}

func (s hostService) address() string { return s.server.Listener.Addr().String() }

// flag returns the value of --host-service for a cloud.
func (s hostService) flag() string { return "machine=" + s.address() }

// variable tells clients where a sandbox finds the service.
func (s hostService) variable() string {
	_, port, _ := net.SplitHostPort(s.address())
	return "HOST_SERVICE=machine.host.internal:" + port
}

func (s hostService) end() error {
	s.server.Close()
	return nil
}

// warmUp runs code once. If all clients began at the same time, each of their first
// kernels would load the modules that the process from which kernels are forked is still
// loading.
func warmUp(cloud []string) error {
	sb, err := sandbox.Create(context.Background(), sandbox.WithAPIKey(api.Key(variable(cloud, "E2B_API_KEY"))),
		sandbox.WithAPIURL(variable(cloud, "E2B_API_URL")), sandbox.WithSandboxURL(variable(cloud, "E2B_SANDBOX_URL")))
	if err != nil {
		return err
	}
	_, err = sb.RunCode(context.Background(), "import matplotlib.pyplot", nil)
	return errors.Join(err, sb.Close())
}

// e2bctl returns the path of the command, which was built for these tests.
func e2bctl(t *testing.T) string {
	t.Helper()
	return ready(t, buildOnce)
}

func build() (string, error) {
	dir, err := temporary()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "e2bctl")
	build := exec.Command("go", "build", "-o", program, "github.com/e2bctl/e2bctl/cli/e2bctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it, with or without the race detector
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, output)
	}
	return program, nil
}

// temporary makes a directory that exists until all tests have ended.
func temporary() (string, error) {
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		return "", err
	}
	atEnd(func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// server is a running "e2bctl local up".
type server struct {
	env     []string // the variables that it printed
	command *exec.Cmd
	stderr  *strings.Builder
}

// up starts "e2bctl local up" for one test, with its state directory, and flags.
func up(t *testing.T, program, state string, flags ...string) *server {
	t.Helper()
	return ready(t, func() (*server, error) { return start(program, t.TempDir(), state, flags...) })
}

// start starts "e2bctl local up", as a user does, with the state directory state. The
// record of the cloud is in a directory of its own, record, so it does not interfere with
// a cloud that this user runs.
func start(program, record, state string, flags ...string) (*server, error) {
	s := &server{command: exec.Command(program, append([]string{"local", "up", "-o", "json", "--port", "0"}, flags...)...), stderr: &strings.Builder{}}
	s.command.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+record, "XDG_STATE_HOME="+state)
	s.command.Stderr = s.stderr
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		_ = s.command.Wait()
		if strings.Contains(s.stderr.String(), "no isolation") {
			return nil, fmt.Errorf("%w: %s", errLacking, s.stderr)
		}
		return nil, fmt.Errorf("local up: %s", s.stderr)
	}
	var printed struct{ Env []string }
	if err := json.Unmarshal(line, &printed); err != nil || len(printed.Env) < 3 {
		return nil, errors.Join(fmt.Errorf("local up printed %s, want a record with its environment", line), err, s.end())
	}
	s.env = printed.Env
	return s, nil
}

// end ends the server as control-C does.
func (s *server) end() error {
	_ = s.command.Process.Signal(os.Interrupt)
	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("local up ended: %w, want no error", err)
	}
	return nil
}

// down ends the server of a test.
func (s *server) down(t *testing.T) {
	t.Helper()
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("local up wrote: %s", s.stderr)
	}
}

// needNames skips the test where names below localhost do not resolve.
func needNames(t *testing.T) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "getent", "ahosts", "api.localhost").Output(); err != nil {
		pinned.Skip(t, "names below localhost do not resolve: run make deps, which installs libnss-myhostname as root (%v %s)", err, output)
	}
}

// byDomain returns the variables of a cloud without its addresses.
func byDomain(cloud []string) []string {
	return slices.DeleteFunc(slices.Clone(cloud), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains([]string{"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"}, name)
	})
}
