// Package cmdtest runs commands against a service of fixed answers, and compares what they send and
// print with a table. It is for the tests of the packages of commands.
package cmdtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// Run runs the commands of each file of testdata/calls. A file has blocks of lines:
//
//	# a comment
//	$ ls --state paused       a command line; words in apostrophes have blanks, "terminal" before it means a terminal of 60 columns
//	< a line                  a line of its standard input
//	? GET /path 200 {...}     an answer of the service; "..." at the end of a path stands for any end; others are 404.
//	                          A call of the daemon in a sandbox has its messages as JSON, those of a stream in an array,
//	                          and POST /execute the lines of the answer of a kernel
//	- no key                  the user has no key; with "- full", standard output is a file on a full disk,
//	                          with "- actions" the command runs in a step of GitHub Actions,
//	                          and with "- environ" the address of the service is in E2B_API_URL
//	~ in any order            the requests are sorted, because the command sends them at the same time
//	> POST /path {...}        a request that the command sends, in their order
//	| a line                  a line of standard output
//	! a line                  a line of standard error
//	= an error                the error of the command
//
// URL stands for the address of the service, HOME for the directory of the user, HERE for the current directory, NOW for a time of the last minutes,
// TIME for a time behind a middle dot, and ID for a random text of 26 letters and digits, or the id of a session of a kernel.
// Run also compares the names of the commands, and which parts of their help they have, with testdata/names.txt.
//
// With the environment variable UPDATE_CALLS it writes the last four kinds of lines and the names anew.
func Run(t *testing.T, commands func(*cmdutil.Factory) []*cobra.Command) {
	t.Helper()
	isolate(t)
	files, err := filepath.Glob(filepath.Join("testdata", "calls", "*.txt"))
	must.Do(t, err)
	if len(files) == 0 {
		t.Fatal("there are no calls in testdata/calls")
	}
	for i, file := range files {
		if files[i], err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
	}
	checkNames(t, commands)
	t.Chdir(t.TempDir())
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Do(t, err)
		var blocks []string
		for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			got := runBlock(t, commands, block)
			if got != block && os.Getenv("UPDATE_CALLS") == "" {
				t.Errorf("%s: got\n%s\nwant\n%s", filepath.Base(file), got, block)
			}
			blocks = append(blocks, got)
		}
		if os.Getenv("UPDATE_CALLS") != "" {
			must.Do(t, os.WriteFile(file, []byte(strings.Join(blocks, "\n\n")+"\n"), 0o600))
		}
	}
}

// isolate makes the environment that of a user with a key and without a local cloud or a CI system.
func isolate(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		for _, prefix := range []string{"E2B", "GITHUB_", "CI", "OTEL_", "XDG_"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "")
			}
		}
	}
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR"} {
		t.Setenv(name, dir)
	}
}

// fullDisk is a file that cannot be written to.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// answer is an answer of the service.
type answer struct {
	method, path string
	status       int
	body         string
}

// maxText is the length of a call of the daemon in a table. The rest is a program that another test checks.
const maxText = 250

// service answers requests, and keeps them.
type service struct {
	mu      sync.Mutex
	answers []answer
	sent    []string

	connections atomic.Int64 // that are open
}

// start starts a server of the service.
func (s *service) start() *httptest.Server {
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.connections.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.connections.Add(-1)
		}
	}
	server.Start()
	return server
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	text, method := string(body), methodOf(r.URL.Path)
	if method != nil {
		var err error
		if text, err = readable(method, body); err != nil {
			text = err.Error()
		}
	}
	if user, _, ok := r.BasicAuth(); ok {
		text += " as " + user
	}
	if method != nil && len(text) > maxText {
		text = text[:maxText] + "…"
	}
	s.sent = append(s.sent, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+text))
	for _, a := range s.answers {
		begin, open := strings.CutSuffix(a.path, "...")
		if a.method == r.Method && (a.path == r.URL.RequestURI() || open && strings.HasPrefix(r.URL.RequestURI(), begin)) {
			if method != nil {
				if err := answerCall(w, method, a.status, a.body); err != nil {
					s.sent = append(s.sent, err.Error())
				}
				return
			}
			w.WriteHeader(a.status)
			_, _ = io.WriteString(w, inLines(r.URL.Path, a.body))
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"code":404,"message":"no such thing"}`)
}

// inLines returns the body of an answer. The body of a kernel has the elements of an array as lines.
func inLines(path, body string) string {
	var lines []json.RawMessage
	if path != "/execute" || json.Unmarshal([]byte(body), &lines) != nil {
		return body
	}
	var text strings.Builder
	for _, line := range lines {
		text.Write(append(line, '\n'))
	}
	return text.String()
}

// runBlock runs the command of a block, and returns the block as it is.
func runBlock(t *testing.T, commands func(*cmdutil.Factory) []*cobra.Command, block string) string {
	t.Helper()
	s := &service{}
	server := s.start()
	defer server.Close()
	t.Setenv("E2B_SANDBOX_URL", server.URL)
	var kept, args, input []string
	terminal, sorted, full, actions, environ, key := false, false, false, false, false, "e2b_00"
	for line := range strings.SplitSeq(block, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "$":
			rest, terminal = strings.CutPrefix(rest, "terminal ")
			args = words(rest)
		case "<":
			input = append(input, rest+"\n")
		case "?":
			var a answer
			if _, err := fmt.Sscan(rest, &a.method, &a.path, &a.status); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if parts := strings.SplitN(rest, " ", 4); len(parts) == 4 {
				a.body = parts[3]
			}
			s.answers = append(s.answers, a)
		case "~":
			sorted = true
		case "-":
			full, actions, environ = full || rest == "full", actions || rest == "actions", environ || rest == "environ"
			if rest == "no key" {
				key = ""
			}
		case "#":
		default:
			continue
		}
		kept = append(kept, line)
	}
	t.Setenv("GITHUB_ACTIONS", map[bool]string{true: "true"}[actions])
	var out, errs Output // a command may write while it gets output of the sandbox
	ios := cmdutil.NewIOStreams(strings.NewReader(strings.Join(input, "")), &out, &errs)
	if full {
		ios.Out = fullDisk{}
	}
	t.Setenv("E2B_API_KEY", key)
	if terminal {
		ios.InIsData, ios.InIsTerminal, ios.OutIsTerminal, ios.ErrIsTerminal, ios.OutWidth, ios.ErrWidth = false, true, true, true, 60, 60
	}
	if t.Setenv("E2B_API_URL", ""); environ {
		t.Setenv("E2B_API_URL", server.URL)
	} else {
		args = append([]string{"--api-url", server.URL}, args...)
	}
	err := Execute(t, ios, commands, args...)
	if !actions { // there, the transport masks secrets, and does not belong to the client
		patience.Until(t, "the command has closed its connections: "+strings.Join(args, " "), func() bool { return s.connections.Load() == 0 })
	}
	if sorted {
		slices.Sort(s.sent)
	}
	here, wrong := os.Getwd()
	must.Do(t, wrong)
	names := strings.NewReplacer(server.URL, "URL", os.Getenv("HOME"), "HOME", here, "HERE")
	for _, part := range []struct{ kind, text string }{{">", strings.Join(s.sent, "\n")}, {"|", out.String()}, {"!", errs.String()}, {"=", message(err)}} {
		kept = append(kept, linesOf(part.kind, part.text, names)...)
	}
	return strings.Join(kept, "\n")
}

// linesOf returns the lines of a text, with a kind in front of each.
func linesOf(kind, text string, names *strings.Replacer) (lines []string) {
	if text == "" {
		return nil
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		lines = append(lines, strings.TrimRight(kind+" "+steady(names.Replace(line)), " "))
	}
	return lines
}

// steady returns a line in which NOW stands for each time of the last minutes, TIME for a duration, and ID for a random text
// or the id of a session.
func steady(line string) string {
	line = regexp.MustCompile(`\b[A-Z2-7]{26}\b`).ReplaceAllString(line, "ID")
	line = regexp.MustCompile(`session_id=[0-9a-f-]{36}`).ReplaceAllString(line, "session_id=ID")
	line = regexp.MustCompile(`· [0-9.]+(ms|s)\b`).ReplaceAllString(line, "· TIME")
	return regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`).ReplaceAllStringFunc(line, func(text string) string {
		if at, err := time.Parse(time.RFC3339, text); err == nil && time.Since(at).Abs() < 10*time.Minute {
			return "NOW"
		}
		return text
	})
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// words returns the words of a command line. Blanks between apostrophes are parts of a word.
func words(line string) []string {
	quoted := false
	fields := strings.FieldsFunc(line, func(r rune) bool {
		if r == '\'' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
	for i := range fields {
		fields[i] = strings.ReplaceAll(fields[i], "'", "")
	}
	return fields
}

// Execute runs a command line of some commands, with the given streams.
func Execute(t *testing.T, ios *cmdutil.IOStreams, commands func(*cmdutil.Factory) []*cobra.Command, args ...string) error {
	t.Helper()
	return ExecuteContext(t.Context(), ios, commands, args...)
}

// ExecuteContext is like [Execute], with a context of its own.
func ExecuteContext(ctx context.Context, ios *cmdutil.IOStreams, commands func(*cmdutil.Factory) []*cobra.Command, args ...string) error {
	f := cmdutil.NewFactory(ios, func(err error) cmdutil.ErrorView { return cmdutil.ErrorView{Code: "code", Message: err.Error()} })
	root := &cobra.Command{Use: "e2bctl", SilenceErrors: true, SilenceUsage: true, PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return f.Begin(cmd) }}
	root.SetOut(ios.Out)
	root.SetErr(ios.Err)
	f.AddFlags(root)
	root.AddCommand(commands(f)...)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}
