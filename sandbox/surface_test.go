package sandbox

import (
	"context"
	"reflect"
	"testing"

	"github.com/e2bctl/e2bctl/api"
)

// withoutContext lists the exported methods that take no context, and why.
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
		reflect.TypeFor[*Packages](), reflect.TypeFor[*Contexts](), reflect.TypeFor[*Git](), reflect.TypeFor[*api.Client](), reflect.TypeFor[*api.SandboxService](),
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
