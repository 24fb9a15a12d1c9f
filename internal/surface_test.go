package internal_test

import (
	"bufio"
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// withoutContext lists the exported methods that take no context, of types that have others
// that do, with the reasons.
var withoutContext = map[string]string{
	"api.VolumeService.Content":     "computed",
	"sandbox.Volume.ID":             "known since open",
	"sandbox.Volume.Name":           "known since open",
	"sandbox.Sandbox.ID":            "known since create",
	"sandbox.Sandbox.Owned":         "known since create",
	"sandbox.Command.Offset":        "counted",
	"sandbox.Terminal.Offset":       "counted",
	"sandbox.Sandbox.Host":          "computed",
	"sandbox.Sandbox.URL":           "computed",
	"sandbox.Client.URL":            "computed",
	"sandbox.Sandbox.MCPURL":        "computed",
	"sandbox.Sandbox.Transport":     "every request has its own",
	"sandbox.Sandbox.Handler":       "as Transport",
	"sandbox.Sandbox.CodeTransport": "known or not",
	"sandbox.Sandbox.Close":         "must work when every context has ended; bounded by itself",
	"sandbox.Sandbox.Detach":        "as Close",
	"sandbox.Client.API":            "a part of the client",
	"sandbox.Client.NewPool":        "asks nobody: sandboxes are made in the background",
	"sandbox.Client.Close":          "as Sandbox.Close",
	"sandbox.Command.PID":           "known since the start",
	"sandbox.Command.Tag":           "as Command.PID",
	"sandbox.Command.Disconnect":    "asks nobody",
	"sandbox.Terminal.PID":          "known since the start",
	"sandbox.Terminal.Read":         "io.Reader; Close ends it",
	"sandbox.Terminal.Write":        "io.Writer; Close ends it",
	"sandbox.Terminal.Disconnect":   "asks nobody",
	"sandbox.Terminal.Close":        "as Sandbox.Close",
	"sandbox.Files.DownloadURL":     "computed",
	"sandbox.Files.UploadURL":       "computed",
	"sandbox.Watcher.Close":         "as Sandbox.Close",
	"sandbox.Pool.Close":            "as Sandbox.Close",
	"sandbox.Pool.Stats":            "counted here",
	"agent.Run.Close":               "as Sandbox.Close",
	"agent.Run.ID":                  "known since the beginning",
	"agent.Run.Metrics":             "counted here",
}

// withoutParams lists the functions that take a context and can be extended by neither
// *Params nor options at their end, with the reasons why they need not.
var withoutParams = map[string]string{
	"api.KeyService.Create":            "the API has one field",
	"api.KeyService.Delete":            "the API has no field",
	"api.KeyService.List":              "the API has no field",
	"api.KeyService.Rename":            "the API has one field",
	"api.TeamService.List":             "the API has no field",
	"api.SandboxService.CheckAsk":      "the API has no field",
	"api.SandboxService.Get":           "the API has no field",
	"api.SandboxService.Kill":          "as Get",
	"api.SandboxService.MetricsOf":     "the API has one field",
	"api.SandboxService.Refresh":       "the API has one field",
	"api.SandboxService.Resize":        "Resources may get more fields",
	"sandbox.Sandbox.Resize":           "Resources may get more fields",
	"sandbox.Client.Resize":            "Resources may get more fields",
	"api.SandboxService.SetLifetime":   "the API has one field",
	"api.SnapshotService.Delete":       "as SandboxService.Kill",
	"api.TemplateService.AssignTags":   "the API has these fields",
	"api.TemplateService.Architecture": "asks what the service is",
	"api.TemplateService.CheckStages":  "asks what the service is",
	"api.TemplateService.Delete":       "as SandboxService.Kill",
	"api.TemplateService.FileUpload":   "the API has no field",
	"api.TemplateService.RemoveTags":   "the API has these fields",
	"api.TemplateService.Resolve":      "the API has no field",
	"api.TemplateService.Tags":         "the API has no field",
	"api.TemplateService.Upload":       "everything is in what FileUpload returned",
	"sandbox.Snapshots.Delete":         "names one snapshot",
	"sandbox.Secrets.Delete":           "names one secret",
	"sandbox.Secrets.Get":              "names one secret",
	"api.SecretService.Delete":         "the API has no field",
	"api.SecretService.Get":            "the API has no field",
	"api.VolumeService.Create":         "the API has one field",
	"api.VolumeService.Delete":         "the API has no field",
	"api.VolumeService.Get":            "the API has no field",
	"api.VolumeService.List":           "the API has no field",
	"api.VolumeContent.Open":           "names one file",
	"api.VolumeContent.Remove":         "the API has no field",
	"api.VolumeContent.Stat":           "the API has no field",
	"sandbox.Volumes.Create":           "as api.VolumeService.Create",
	"sandbox.Volumes.Delete":           "names one volume",
	"sandbox.Volumes.List":             "lists all",
	"sandbox.Volumes.Open":             "names one volume",
	"sandbox.Volume.Exists":            "names one file",
	"sandbox.Volume.Open":              "names one file",
	"sandbox.Volume.Read":              "names one file",
	"sandbox.Volume.Remove":            "as api.VolumeContent.Remove",
	"sandbox.Volume.Stat":              "names one file",
	"sandbox.Client.Info":              "names one sandbox",
	"sandbox.Client.Kill":              "as Client.Info",
	"sandbox.Sandbox.Info":             "is about one sandbox",
	"sandbox.Sandbox.Kill":             "as Sandbox.Info",
	"sandbox.Sandbox.MCPToken":         "as Sandbox.Info",
	"sandbox.Sandbox.SetLifetime":      "sets one value",
	"sandbox.Client.SetLifetime":       "sets one value",
	"sandbox.Sandbox.SetNetwork":       "sets one value, a struct",
	"sandbox.Sandbox.Dial":             "as net.Dialer.DialContext",
	"sandbox.Sandbox.DialWebsocket":    "as websocket.Dialer.DialContext",
	"sandbox.Sandbox.WaitPort":         "as Sandbox.Dial; ctx says how long",
	"sandbox.Contexts.Interrupt":       "names one context",
	"sandbox.Contexts.List":            "lists all",
	"sandbox.Contexts.Remove":          "names one context",
	"sandbox.Contexts.Restart":         "names one context",
	"sandbox.Command.CloseStdin":       "as exec.Cmd's pipes",
	"sandbox.Command.Events":           "reads what came",
	"sandbox.Command.Kill":             "as os.Process",
	"sandbox.Command.SendInput":        "as exec.Cmd's pipes",
	"sandbox.Command.Signal":           "as os.Process",
	"sandbox.Command.Wait":             "as os.Process",
	"sandbox.Terminal.Resize":          "sets one value",
	"sandbox.Terminal.Wait":            "as Command.Wait",
	"sandbox.Watcher.Events":           "as Command.Events",
	"sandbox.Eval":                     "evaluates in the default context; RunCode has params",
	"sandbox.Files.CopyFS":             "as os.CopyFS; Files.UploadDir has params",
	"sandbox.Files.FS":                 "an fs.FS, whose methods have no params",
	"sandbox.Pool.Get":                 "everything is in the params of NewPool",
	"agent.Run.Changed":                "everything is in the params of Begin",
	"agent.Run.Delete":                 "as Changed",
	"agent.Run.Exec":                   "as Changed",
	"agent.Run.Get":                    "as Changed",
	"agent.Run.Pull":                   "as Changed",
	"agent.Run.SpendTokens":            "counts",
	"agent.SpendTokens":                "counts",
	"agent.Toolbox.Call":               "what bounds a call is in the options of its tool",
	"local.FindPython":                 "looks at everything",
}

// channels lists the channels of the API, with the reasons why they are no iter.Seq2.
var channels = map[string]string{
	"local.Cloud.Done": "as context.Context.Done",
}

// foreign lists the types of other modules in the API, which are documented there.
var foreign = map[string]string{
	"sandbox.WithInterceptors":      "connectrpc.com/connect",
	"sandbox.Sandbox.DialWebsocket": "github.com/gorilla/websocket",
	"otel.WithTracing":              "go.opentelemetry.io/otel/trace",
	"otel.AgentTrace":               "go.opentelemetry.io/otel/trace",
	"otel.Params.Meters":            "go.opentelemetry.io/otel/metric",
	"otel.ObservePool":              "go.opentelemetry.io/otel/metric",
	"otel.ObserveService":           "go.opentelemetry.io/otel/metric",
	"agentmcp.Tools":                "github.com/modelcontextprotocol/go-sdk/mcp",
	"agentmcp.AddTools":             "github.com/modelcontextprotocol/go-sdk/mcp",
}

// anything lists the places that take a value of any type on purpose. Package state, whose
// subject they are, is left out.
var anything = map[string]string{
	"api.CreateParams.MCP":     "what a server is told is its own JSON",
	"sandbox.WithMCP":          "as api.CreateParams.MCP",
	"agent.Step.Decode":        "a pointer to decode into",
	"agent.ToolFromSchema":     "its types are known only when the program runs",
	"sandbox.Execution.Decode": "a pointer to decode into",
	"sandbox.Result.Decode":    "a pointer to decode into",
	"chart.DataFrame.Column":   "a pointer to decode into",
}

// lists lists the methods that return all of a list at once, with the reasons.
var lists = map[string]string{
	"api.KeyService.List":    "one answer has all",
	"api.TeamService.List":   "one answer has all",
	"api.VolumeService.List": "one answer has all",
	"api.VolumeContent.List": "one answer has all",
	"sandbox.Volume.List":    "one answer has all",
	"sandbox.Volumes.List":   "one answer has all",
	"sandbox.Commands.List":  "one answer has all",
	"sandbox.Contexts.List":  "one answer has all",
	"sandbox.Files.List":     "one answer has all",
}

// sameNames lists names of types that several packages have, with the reasons. Types that
// can be converted into each other, such as those of api and sandbox with the same fields,
// are not here.
var sameNames = map[string]string{
	"Client":         "each makes the calls of its package; that of sandbox has one of api",
	"Cloud":          "that of sandboxtest has the one of local",
	"ForkResult":     "that of sandbox has a handle where that of api has an answer",
	"ForkParams":     "that of sandbox has the expiry of handles where that of api has a lifetime",
	"GitCloneParams": "that of sandbox clones where something runs, that of template in a build",
	"Option":         "an option of the package",
	"Resources":      "that of local also has the number of processes, which no single sandbox can ask for",
	"Sandbox":        "one thing: that of api is what the API says about it",
	"Volume":         "one thing: that of api is what the API says about it",
	"Params":         "those of the one thing that the package is for",
	"Trace":          "each has the hooks of its package",
}

// TestSurface holds the exported API to rules.
func TestSurface(t *testing.T) {
	t.Parallel()
	statSources(t)
	s := &surface{t: t, used: map[string]bool{}, named: map[string]*types.TypeName{}}
	for _, p := range publicPackages(t) {
		scope := p.Scope()
		for _, name := range scope.Names() {
			if token.IsExported(name) {
				s.object(p.Name()+"."+name, scope.Lookup(name))
			}
		}
	}
	if len(s.named) < 150 {
		t.Errorf("the API has only %d types", len(s.named))
	}
	for _, table := range []map[string]string{withoutContext, withoutParams, channels, foreign, anything, lists, sameNames} {
		for name := range table {
			if !s.used[fmt.Sprintf("%p %s", table, name)] {
				t.Errorf("%s is no exception any longer, or has gone: remove it", name)
			}
		}
	}
}

// surface checks one object after another.
type surface struct {
	t     *testing.T
	used  map[string]bool            // the exceptions that were needed
	named map[string]*types.TypeName // by the name without the package
}

// excepted reports whether a table has the name.
func (s *surface) excepted(table map[string]string, name string) bool {
	_, found := table[name]
	s.used[fmt.Sprintf("%p %s", table, name)] = found
	return found
}

func (s *surface) object(name string, o types.Object) {
	switch o := o.(type) {
	case *types.Func:
		s.function(name, o.Signature(), false)
	case *types.TypeName:
		s.typeName(name, o)
	default: // it is a constant or variable
		s.shows(name, o.Type())
	}
}

func (s *surface) typeName(name string, o *types.TypeName) {
	named, ok := types.Unalias(o.Type()).(*types.Named)
	if !ok {
		s.t.Errorf("%s is an alias of %v, which has no name", name, o.Type())
		return
	}
	if other := s.named[o.Name()]; other != nil && !types.ConvertibleTo(other.Type(), named) && !s.excepted(sameNames, o.Name()) {
		s.t.Errorf("%s has the name of %s.%s", name, other.Pkg().Name(), other.Name())
	}
	s.named[o.Name()] = named.Obj()
	if o.IsAlias() {
		s.shows(name, named)
		return
	}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				s.shows(name+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range u.Methods() {
			if m.Exported() {
				s.function(name+"."+m.Name(), m.Signature(), false)
			}
		}
	case *types.Signature: // it is an option, or a function of the caller
	default:
		s.shows(name, u)
	}
	asks := false
	for m := range named.Methods() {
		asks = asks || m.Exported() && takesContext(m.Signature()) >= 0
	}
	for m := range named.Methods() {
		if m.Exported() {
			s.function(name+"."+m.Name(), m.Signature(), asks)
		}
	}
}

// function checks a function, or a method of a type that makes requests to a service.
func (s *surface) function(name string, f *types.Signature, asks bool) {
	s.shows(name, f)
	at := takesContext(f)
	switch {
	case at > 0:
		s.t.Errorf("%s: the context is not the first parameter", name)
	case at < 0 && asks && !s.excepted(withoutContext, name):
		s.t.Errorf("%s takes no context", name)
	case at == 0 && !grows(f) && !s.excepted(withoutParams, name):
		s.t.Errorf("%s: the last parameter is neither *Params nor options", name)
	}
	for i := range f.Results().Len() {
		result := f.Results().At(i).Type()
		if isError(result) && i < f.Results().Len()-1 {
			s.t.Errorf("%s: the error is not the last result", name)
		}
		if at < 0 {
			continue
		}
		if _, isSlice := result.Underlying().(*types.Slice); isSlice && strings.HasSuffix(name, ".List") && !s.excepted(lists, name) {
			s.t.Errorf("%s returns a list at once: return an iter.Seq2", name)
		}
		if _, isFunc := result.Underlying().(*types.Signature); isFunc && !isSeq2(result) {
			s.t.Errorf("%s returns %v: return an iter.Seq2 with an error", name, result)
		}
	}
}

// takesContext returns the index of the context among the parameters, or -1.
func takesContext(f *types.Signature) int {
	for i := range f.Params().Len() {
		if types.TypeString(f.Params().At(i).Type(), nil) == "context.Context" {
			return i
		}
	}
	return -1
}

// grows reports whether the last parameter can be extended later.
func grows(f *types.Signature) bool {
	last := f.Params().At(f.Params().Len() - 1).Type()
	if f.Variadic() {
		option, ok := types.Unalias(last.(*types.Slice).Elem()).(*types.Named)
		return ok && strings.HasSuffix(option.Obj().Name(), "Option")
	}
	pointer, ok := last.(*types.Pointer)
	if !ok {
		return false
	}
	params, ok := types.Unalias(pointer.Elem()).(*types.Named)
	return ok && strings.HasSuffix(params.Obj().Name(), "Params")
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// isSeq2 reports whether t is an iter.Seq2 whose second value is an error.
func isSeq2(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg().Path() == "iter" && named.Obj().Name() == "Seq2" && isError(named.TypeArgs().At(1))
}

// shows checks the types that a declaration shows.
func (s *surface) shows(name string, t types.Type) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		s.showsNamed(name, t)
	case *types.Pointer:
		s.shows(name, t.Elem())
	case *types.Slice:
		s.values(name, t.Elem())
		s.shows(name, t.Elem())
	case *types.Array:
		s.shows(name, t.Elem())
	case *types.Map:
		s.shows(name, t.Key())
		s.shows(name, t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			s.shows(name, v.Type())
		}
		for v := range t.Results().Variables() {
			s.shows(name, v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			s.shows(name, f.Type())
		}
	case *types.Chan:
		if !s.excepted(channels, name) {
			s.t.Errorf("%s has a channel", name)
		}
	case *types.Interface:
		if t.Empty() && !strings.HasPrefix(name, "state.") && !s.excepted(anything, name) {
			s.t.Errorf("%s takes or returns a value of any type", name)
		}
	}
}

// values refuses a list of pointers: the items of lists are values.
func (s *surface) values(name string, item types.Type) {
	if _, ok := types.Unalias(item).(*types.Pointer); ok {
		s.t.Errorf("%s has a list of %v: make it one of values", name, item)
	}
}

func (s *surface) showsNamed(name string, t *types.Named) {
	if t.Obj().Name() == "Seq2" {
		s.values(name, t.TypeArgs().At(0))
	}
	for arg := range t.TypeArgs().Types() {
		s.shows(name, arg)
	}
	p := t.Obj().Pkg()
	if p == nil { // error, comparable
		return
	}
	inside, ours := strings.CutPrefix(p.Path(), module+"/")
	first, _, _ := strings.Cut(p.Path(), "/")
	switch {
	case ours && !isPublic(inside):
		s.t.Errorf("%s shows %v, whose documentation is not public", name, t)
	case !ours && strings.Contains(first, ".") && (!s.excepted(foreign, name) || foreign[name] != p.Path()):
		s.t.Errorf("%s shows %v of another module", name, t)
	}
}

// isPublic reports whether a package of this module is part of its API.
func isPublic(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	return slices.Contains([]string{"api", "sandbox", "state"}, top)
}

// publicPackages returns the packages of the API with their types.
func publicPackages(t *testing.T) []*types.Package {
	t.Helper()
	arguments := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(imports)) {
		if isPublic(path) {
			paths = append(paths, module+"/"+path)
		}
	}
	command := exec.CommandContext(t.Context(), "go", append(arguments, paths...)...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	compiled := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), "\t")
		compiled[path] = file
	}
	read := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	var packages []*types.Package
	for _, path := range paths {
		p, err := read.Import(path)
		must.Do(t, err)
		packages = append(packages, p)
	}
	return packages
}
