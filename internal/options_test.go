package internal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/types"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// passOn lists the functions that pass their options on to one of nilOptions, and have no
// error to return.
var passOn = map[string]string{
	"sandbox/sandboxtest.New":          "local.Start, whose error ends the test",
	"sandbox/sandboxtest.Cloud.Create": "sandbox.Create, whose error ends the test",
}

// nilOptions has a call with a nil option of each exported function that takes options.
func nilOptions(ctx context.Context, client *sandbox.Client) map[string]func() error {
	tool := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
	schema := func(context.Context, json.RawMessage) (any, error) { return nil, nil }
	managed := func(context.Context, string) (struct{}, error) { return struct{}{}, nil }
	return map[string]func() error{
		"api.NewClient":              func() error { _, err := api.NewClient(nil); return err },
		"sandbox.NewClient":          func() error { _, err := sandbox.NewClient(nil); return err },
		"sandbox.WithOptions":        func() error { _, err := sandbox.NewClient(sandbox.WithOptions(nil)); return err },
		"sandbox.WithDefaults":       func() error { _, err := sandbox.NewClient(sandbox.WithDefaults(nil)); return err },
		"sandbox.Create":             func() error { _, err := sandbox.Create(ctx, nil); return err },
		"sandbox.Connect":            func() error { _, err := sandbox.Connect(ctx, "id", nil); return err },
		"sandbox.Use":                func() error { return sandbox.Use(ctx, nil, nil) },
		"sandbox.Client.Create":      func() error { _, err := client.Create(ctx, nil); return err },
		"sandbox.Client.Connect":     func() error { _, err := client.Connect(ctx, "id", nil); return err },
		"sandbox.Client.GetOrCreate": func() error { _, err := client.GetOrCreate(ctx, "name", nil); return err },
		"sandbox.Client.NewPool":     func() error { _, err := client.NewPool(nil, nil); return err },
		"sandbox/local.Start":        func() error { _, err := local.Start(ctx, nil); return err },
		"sandbox/local.Setup":        func() error { _, err := local.Setup(ctx, io.Discard, nil); return err },
		"sandbox/agent.NewTool":      func() error { _, err := agent.NewTool("f", "", tool, nil); return err },
		"sandbox/agent.MustTool":     func() error { agent.MustTool("f", "", tool, nil); return nil },
		"sandbox/agent.ToolFromSchema": func() error {
			_, err := agent.ToolFromSchema("f", "", json.RawMessage(`{"type":"object"}`), schema, nil)
			return err
		},
		"sandbox/agent.NewManaged": func() error {
			_, err := agent.NewManaged("f", "", agent.Budget{}, managed, nil)
			return err
		},
		"sandbox/agent.MustManaged": func() error { agent.MustManaged("f", "", agent.Budget{}, managed, nil); return nil },
	}
}

// TestNilOption checks that every function that takes options reports a nil option.
func TestNilOption(t *testing.T) {
	t.Parallel()
	client, err := sandbox.NewClient(sandbox.WithAPIKey(api.Key("e2b_" + strings.Repeat("0", 40))))
	must.Do(t, err)
	defer client.Close()
	calls := nilOptions(t.Context(), client)
	left := maps.Clone(calls)
	for _, name := range takingOptions(t) {
		delete(left, name)
		call := calls[name]
		switch _, passed := passOn[name]; {
		case call == nil && !passed:
			t.Errorf("%s takes options: add a call with nil to nilOptions", name)
		case call != nil:
			if err := said(call); err == nil || !strings.Contains(err.Error(), "option 1 is nil: leave it out") {
				t.Errorf("%s: got error %v, want that the option is nil and what to do", name, err)
			}
		}
	}
	for name := range left {
		t.Errorf("no function %s takes options", name)
	}
}

// said returns the error of a call, or the value with which it panics.
func said(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return call()
}

// takingOptions returns the exported functions whose last parameter is any number of options.
func takingOptions(t *testing.T) (names []string) {
	t.Helper()
	add := func(name string, f *types.Signature) {
		if !f.Variadic() {
			return
		}
		last := f.Params().At(f.Params().Len() - 1).Type().(*types.Slice).Elem()
		_, isFunction := last.Underlying().(*types.Signature)
		named, isNamed := types.Unalias(last).(*types.Named)
		if isFunction || isNamed && strings.HasSuffix(named.Obj().Name(), "Option") {
			names = append(names, name)
		}
	}
	for _, p := range publicPackages(t) {
		path := strings.TrimPrefix(p.Path(), module+"/")
		for _, name := range p.Scope().Names() {
			switch o := p.Scope().Lookup(name).(type) {
			case *types.Func:
				if o.Exported() {
					add(path+"."+name, o.Signature())
				}
			case *types.TypeName:
				named, ok := o.Type().(*types.Named)
				for i := 0; ok && o.Exported() && i < named.NumMethods(); i++ {
					if m := named.Method(i); m.Exported() {
						add(path+"."+name+"."+m.Name(), m.Signature())
					}
				}
			}
		}
	}
	return names
}
