package cli

import (
	"errors"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/refusetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	testscript.Main(leakCheck{m}, map[string]func(){"e2bctl": runAsCommand})
}

// runAsCommand runs e2bctl when a script has started the test binary under that name. The
// kernel then refuses the calls listed in CLI_TEST_REFUSE. With CLI_TEST_COLD, a local cloud in
// the background keeps no sandbox ready: most scripts do not use those that it would start.
func runAsCommand() {
	if os.Getenv("CLI_TEST_COLD") != "" && isBackground(os.Args) && !slices.Contains(os.Args, "--warm") {
		os.Args = append(os.Args, "--warm", "0")
	}
	if refuse := os.Getenv("CLI_TEST_REFUSE"); refuse != "" {
		if err := refusetest.Refuse(refuse); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(Main()) //nolint:forbidigo // this is the main function of that process
}

// isBackground reports whether this is the command line of a local cloud that another command
// starts in the background.
func isBackground(args []string) bool {
	return len(args) > 2 && slices.Equal(args[1:3], []string{"local", "up"}) && slices.Contains(args, "--log")
}

// leakCheck fails a test run that leaves goroutines behind.
type leakCheck struct{ m *testing.M }

func (l leakCheck) Run() int {
	// A shell's background job ignores interrupts, and so would the children of the tests.
	// They do not ignore signals that this process catches.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		return 1
	}
	return code
}

// TestScripts runs every command as a process against an in-memory service.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			s := newService(env.T().(testing.TB))
			env.Values[serviceValue{}] = s
			env.Vars = append(env.Vars, s.env()...)
			env.Setenv("CLOSED", closedAddress)
			env.Setenv("SANDBOX_HOME", s.home)
			env.Setenv("STRANGE", "16\n58\x1b") // scripts cannot write these characters
			env.Setenv("HOSTILE", "a\n::set-env name=PATH::b")
			return privateDirectories(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": cmdStatus,
			"left":   cmdLeft,
		},
	})
}

type serviceValue struct{}

// TestLocalScripts runs the commands against the local cloud: real sandboxes and
// a real Python.
func TestLocalScripts(t *testing.T) {
	t.Parallel()
	localScripts(t, "testdata/local")
}

// TestAccountScripts is like TestLocalScripts. The outcome of its scripts may depend on the account: they are about
// the cloud's place, processes and files, isolation, ownership and limits.
func TestAccountScripts(t *testing.T) {
	t.Parallel()
	localScripts(t, "testdata/account")
}

func localScripts(t *testing.T, directory string) {
	t.Helper()
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	cache, err := os.UserCacheDir()
	must.Do(t, err)
	testscript.Run(t, testscript.Params{
		Dir:           directory,
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("CLOSED", closedAddress)
			env.Setenv("XDG_CACHE_HOME", cache) // the prepared Python
			env.Setenv("CLI_TEST_COLD", "1")
			// A script that fails half-way must not leave a cloud running.
			env.Defer(func() {
				for _, state := range []string{"", "mine"} {
					down := exec.Command("e2bctl", "local", "down", "-q", "--state-dir", state)
					down.Dir, down.Env = env.WorkDir, env.Vars
					if out, err := down.CombinedOutput(); err != nil {
						env.T().Log("local down: ", err, string(out))
					}
				}
			})
			return privateDirectories(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": cmdStatus},
	})
}

// privateDirectories gives a script its own home and runtime directory.
func privateDirectories(env *testscript.Env) error {
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR"} {
		dir := filepath.Join(env.WorkDir, "."+strings.ToLower(name))
		env.Setenv(name, dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// cmdStatus runs a command and compares its exit status: status N cmd args...
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
	if name := goName(ts.ReadFile("stderr")); name != "" && args[1] == "e2bctl" {
		ts.Fatalf("the error speaks of %q, want words of the command", name)
	}
	if doubled(ts.ReadFile("stderr"), args) {
		ts.Fatalf("the error says twice what was done")
	}
}

// doubled reports whether an error has the last word of a command's name twice.
func doubled(text string, commandLine []string) bool {
	own, rest, _ := strings.Cut(strings.TrimPrefix(text, "e2bctl: "), ": ")
	words := strings.Fields(own)
	if len(words) == 0 || !slices.Contains(commandLine, words[len(words)-1]) {
		return false
	}
	group, name := words[0], words[len(words)-1]
	again := []string{name + ": ", group + ": ", name + " " + group + " "}
	if len(words) == 1 {
		again = append(again, name+" ")
	}
	return slices.ContainsFunc(again, func(begin string) bool { return strings.HasPrefix(rest, begin) })
}

// goName returns a part of a text that only Go programmers understand, or "".
func goName(text string) string {
	return regexp.MustCompile(`\b(strconv|local|sandbox|api|context|errors|os)\.[A-Z]\w*|\b(With|Set)[A-Z]\w*|context (deadline exceeded|canceled)|: api: |e2bctl: [^:]+: sandbox: `).FindString(text)
}

// cmdLeft compares how many sandboxes were created and how many are left.
func cmdLeft(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(serviceValue{}).(*service)
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strconv.Itoa(len(s.sandboxes)) + " of " + strconv.Itoa(s.created); got != strings.Join(args, " ") {
		ts.Fatalf("%s sandboxes are left, want %s", got, strings.Join(args, " "))
	}
}
