package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMessage covers messages of the SDK for Go programs.
func TestMessage(t *testing.T) {
	t.Parallel()
	ctx, cancel := WithLimit(t.Context(), "deadline", Duration(time.Nanosecond))
	defer cancel()
	<-ctx.Done()
	for want, err := range map[string]error{
		"create from base: POST /sandboxes: 500: no": errors.New("sandbox: create from base: api: POST /sandboxes: 500: no"),
		"one\ntwo":              errors.Join(errors.New("sandbox: one"), errors.New("api: two")),
		"run: it took too long": fmt.Errorf("sandbox: run: %w", context.DeadlineExceeded),
		"run: the time limit of --deadline 1ns was reached":                                         fmt.Errorf("sandbox: run: %w", context.Cause(ctx)),
		"its lifetime ended; create it with a longer --lifetime":                                    errors.New("its lifetime ended; ask for more with WithExpiry or SetLifetime"),
		"no key: set E2B_API_KEY for a service, or add --local for the local cloud of this machine": errNoKey,
		"x is gone: it is paused":                                     errors.New("x is gone: it is paused; Resume or Connect wakes it up"),
		"resume it from its files with e2bctl resume --reboot":        errors.New("resume it from its files with WithReboot or ResumeParams.Reboot"),
		"pause it with --mode filesystem, which keeps only its files": errors.New(`pause it with mode="filesystem" (memory false), which keeps only its files`),
		"red": errors.New("\x1bred"),
	} {
		if got := Message(err); got != want {
			t.Errorf("Message(%q) = %q, want %q", err, got, want)
		}
	}
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Errorf("%v is no context.DeadlineExceeded", context.Cause(ctx))
	}
	if !errors.Is(errNoKey, api.ErrNoAPIKey) {
		t.Errorf("%v is no api.ErrNoAPIKey", errNoKey)
	}
}

// goName matches parts of a text that only Go programmers understand.
var goName = regexp.MustCompile(`\b(local|sandbox|api|template|errors|context|Definition|Commands|Contexts|Files|PTY|Egress|Network|Resources)\.[A-Z]\w+|\b\w+Params\b|\b(With|Set)[A-Z]\w+`)

// onlyPrograms are the beginnings of texts that no command line causes: the command has no
// flag for their subject, or checks it before.
var onlyPrograms = []string{
	"Egress.Ask:", "the answer of WithAsk", "the function of WithAsk", "sandbox: reap: ReapParams.Metadata", "PoolParams with", "GitConfigParams ", "GitResetParams ",
	"api: WithTransport:", "api: WithDialContext:", "api: WithLogger:", "api: WithHeaders:", "api: WithMaxRetries(", "api: WithUserAgent(",
	"sandbox: its kernels answer without a token", "RunCodeParams.Silent and NoHistory", "sandbox: WithMCP", "sandbox: WithCodeTransport(",
	"sandbox: WithPackageIndex:", "give WithPipCredentials",
	"it was started without: set CommandParams.Input", "it has no terminal: use Commands", "sandbox: run a command: CommandParams.Input",
	"PTYConnectParams.From",
	"CommandParams.Timeout is negative", "CommandParams has both", "CommandParams.Stdout is set", "CommandParams.Stderr is set", "CommandParams.MaxOutputBytes is negative",
	"PTYParams.Timeout is negative", "sandbox: WithResources(", "%w: it has more than %d bytes: set CommandParams.MaxOutput", "sandbox: %s of %s: %w: ForwardParams.MaxConnections",
	"sandbox: run a program: ProgramParams.Command", "local: start: %d sandboxes cannot be kept ready",
}

// isForPrograms reports whether the command never shows a text: it begins with the name of
// an option or of an operation alone, whose values the commands check.
func isForPrograms(text string) bool {
	return regexp.MustCompile(`^\w+$`).MatchString(text) ||
		slices.ContainsFunc(onlyPrograms, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// noError are the directories whose errors no command shows.
var noError = []string{"agent", "sandboxtest", "tools", "bench", "realservice", "interop", "e2e", "packaging", "gen", "testdata"}

// TestMessageNamesNoGo reads every text of the code whose errors the command shows.
func TestMessageNamesNoGo(t *testing.T) {
	t.Parallel()
	found, unused := 0, slices.Clone(onlyPrograms)
	for _, dir := range []string{"api", "sandbox", "state", "internal"} {
		top := filepath.Join("..", "..", "..", dir)
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && slices.Contains(noError, entry.Name()) {
				return filepath.SkipDir
			}
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING || !goName.MatchString(literal.Value) {
					return true
				}
				found++
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Errorf("%s: %s: %v", path, literal.Value, err)
				}
				unused = slices.DeleteFunc(unused, func(begin string) bool { return strings.HasPrefix(text, begin) })
				got := Words(strings.ReplaceAll(text, "local.DockerParams", "")) // only a program can set those
				if goName.MatchString(got) && !isForPrograms(text) {
					t.Errorf("%s: the command shows %q: add the flag to message.go, or say in onlyPrograms that no command line leads there", path, got)
				}
				return true
			})
			return nil
		})
		must.Do(t, err)
	}
	if found < 10 {
		t.Errorf("found %d texts with names of Go, want at least 10: the test looks in the wrong place", found)
	}
	for _, begin := range unused {
		t.Errorf("no text begins with %q: take it from onlyPrograms", begin)
	}
}
