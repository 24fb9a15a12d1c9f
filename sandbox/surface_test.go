package sandbox

import (
	"context"
	"go/build"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
)

// withoutContext are the exported methods that take no context, and why.
var withoutContext = map[string]string{
	"Sandbox.ID":            "known since create",
	"Sandbox.Host":          "computed",
	"Sandbox.URL":           "computed",
	"Sandbox.Transport":     "every request has its own",
	"Sandbox.CodeTransport": "known or not",
	"Sandbox.Close":         "must work when every context has ended; bounded by itself",
	"Sandbox.Detach":        "as Close",
	"Client.API":            "a part of the client",
	"Client.Close":          "as Sandbox.Close",
	"Run.Close":             "as Sandbox.Close",
	"Run.Metrics":           "counted here",
	"Command.PID":           "known since the start",
	"Command.Tag":           "as Command.PID",
	"Command.Disconnect":    "asks nobody",
	"Terminal.PID":          "known since the start",
	"Terminal.Read":         "io.Reader; Close ends it",
	"Terminal.Write":        "io.Writer; Close ends it",
	"Terminal.Disconnect":   "asks nobody",
	"Terminal.Close":        "as Sandbox.Close",
	"Files.DownloadURL":     "computed",
	"Files.UploadURL":       "computed",
	"Watcher.Events":        "bounded by the context of Watch",
	"Watcher.Close":         "as Sandbox.Close",
	"Client.Sources":        "settings",
	"Client.BaseURL":        "a setting",
	"Client.Domain":         "a setting",
	"Client.SandboxURL":     "a setting",
	"Client.UserAgent":      "a setting",
	"Client.Transport":      "a setting",
	"Client.Logger":         "a setting",
}

func TestMethodsTakeAContext(t *testing.T) {
	t.Parallel()
	ctx := reflect.TypeFor[context.Context]()
	for _, handle := range []reflect.Type{
		reflect.TypeFor[*Sandbox](), reflect.TypeFor[*Client](), reflect.TypeFor[*Files](), reflect.TypeFor[*Commands](),
		reflect.TypeFor[*Packages](), reflect.TypeFor[*Git](), reflect.TypeFor[*Run](), reflect.TypeFor[*api.Client](), reflect.TypeFor[*api.SandboxService](),
		reflect.TypeFor[*Command](), reflect.TypeFor[*PTY](), reflect.TypeFor[*Terminal](), reflect.TypeFor[*Watcher](),
	} {
		for m := range handle.Methods() {
			name := handle.Elem().Name() + "." + m.Name
			takes := m.Type.NumIn() > 1 && m.Type.In(1) == ctx
			if _, excepted := withoutContext[name]; takes == excepted {
				t.Errorf("%s: takes a context: %v, is an exception: %v", name, takes, excepted)
			}
		}
	}
}

// A program that imports this package alone links nothing of the local cloud,
// nor of the command.
func TestLinksNoCloud(t *testing.T) {
	t.Parallel()
	const module = "github.com/e2bctl/e2bctl/"
	seen := map[string]bool{}
	for next := []string{"sandbox"}; len(next) > 0; {
		path := next[0]
		next = next[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		if strings.HasPrefix(path, "internal/cloud") || strings.HasPrefix(path, "cli") || strings.HasPrefix(path, "sandbox/") {
			t.Errorf("%s is linked", path)
		}
		p, err := build.ImportDir(filepath.Join("..", filepath.FromSlash(path)), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, module); ok {
				next = append(next, own)
			}
		}
	}
	if !seen["api"] || !seen["internal/jupyter"] {
		t.Errorf("the imports were not followed: %v", seen)
	}
}
