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
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// TestMessage covers what the SDK says to Go programs.
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

// goName matches what a Go program would call to start a cloud or to build a template.
var goName = regexp.MustCompile(`\b(local|Definition|BuildParams)\.[A-Z]\w+`)

// TestMessageNamesNoGo reads every text of the code whose errors the command shows.
func TestMessageNamesNoGo(t *testing.T) {
	t.Parallel()
	found := 0
	for _, dir := range []string{"api", "sandbox", "internal/cloud"} {
		top := filepath.Join("..", "..", "..", dir)
		err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
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
				got := Words(strings.ReplaceAll(literal.Value, "local.DockerParams", "")) // only a program can set those
				if goName.MatchString(got) {
					t.Errorf("%s: the command shows %s: add the flag to message.go", path, got)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 10 {
		t.Errorf("found %d texts with names of Go, want at least 10: the test looks in the wrong place", found)
	}
}
