// Package internal_test checks the imports between packages.
package internal_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

const module = "github.com/e2bctl/e2bctl"

// imports lists for each package the packages of this module that it imports, on any
// system, without tests. It is the picture of the house: a new package or a new
// arrow is drawn here first, and an arrow that is no longer needed goes.
var imports = map[string]string{
	"api":   "internal/boundjson internal/clip internal/httpwait internal/lazyregexp internal/protocol",
	"state": "internal/lazyregexp",

	"sandbox": "api sandbox/chart state internal/archive internal/boundjson internal/boundproto internal/clip internal/gen/filesystem" +
		" internal/gen/filesystem/filesystemconnect internal/gen/process internal/gen/process/processconnect" +
		" internal/httpwait internal/jupyter internal/kernelconn internal/lazyregexp internal/pip internal/protocol internal/pyshim" +
		" internal/runhost internal/shell",
	"sandbox/agent": "api sandbox state internal/boundjson internal/clip internal/jupyter internal/kernelconn internal/lazyregexp internal/pip" +
		" internal/pyshim internal/runhost",
	"sandbox/agent/agentmcp": "sandbox/agent state internal/clip",
	"sandbox/chart":          "api internal/boundjson internal/jupyter",
	"sandbox/local": "api sandbox internal/cloud internal/cloud/engine internal/cloud/engine/docker internal/cloud/engine/kubelink internal/cloud/mounts internal/cloud/network internal/cloud/pyenv" +
		" internal/cloud/gvisorenv internal/cloud/requestlog internal/cloud/secrets internal/cloud/wasmenv",
	"sandbox/otel":        "sandbox sandbox/agent",
	"sandbox/sandboxtest": "sandbox sandbox/local",
	"sandbox/template":    "api internal/clip internal/lazyregexp internal/shell",

	"cli": "internal/cloud/engine/kubelink api cli/internal/cmd/apikey cli/internal/cmd/code cli/internal/cmd/doctor cli/internal/cmd/files cli/internal/cmd/local cli/internal/cmd/mcp cli/internal/cmd/network cli/internal/cmd/proc cli/internal/cmd/sandbox" +
		" cli/internal/cmd/secret cli/internal/cmd/serve cli/internal/cmd/snapshot cli/internal/cmd/template cli/internal/cmd/version cli/internal/cmd/volume cli/internal/cmdutil cli/internal/localcloud sandbox",
	"cli/e2bctl":                "cli",
	"cli/manual":                "cli",
	"cli/internal/cmd/apikey":   "api cli/internal/cmdutil",
	"cli/internal/cmd/code":     "cli/internal/cmdutil cli/internal/transfer sandbox internal/privatedir internal/shell",
	"cli/internal/cmd/doctor":   "api cli/internal/cmdutil cli/internal/localcloud sandbox sandbox/local internal/cloud/engine/kubelink internal/cloud/hostprogram internal/cloud/volumes internal/shell",
	"cli/internal/cmd/files":    "cli/internal/cmdutil sandbox",
	"cli/internal/cmd/local":    "api cli/internal/cmdutil cli/internal/localcloud sandbox sandbox/local internal/cloud/hostprogram internal/cloud/localtls internal/shell",
	"cli/internal/cmd/mcp":      "api cli/internal/cmd/version cli/internal/cmdutil cli/internal/mcpserver cli/internal/transfer sandbox internal/cloud/connlimit internal/cloud/hostprogram internal/privatedir",
	"cli/internal/cmd/network":  "cli/internal/cmdutil sandbox",
	"cli/internal/cmd/proc":     "cli/internal/cmdutil sandbox internal/shell",
	"cli/internal/cmd/sandbox":  "api cli/internal/ci cli/internal/cmdutil cli/internal/mirror cli/internal/sshserver cli/internal/transfer sandbox internal/privatedir internal/shell",
	"cli/internal/cmd/secret":   "cli/internal/cmdutil sandbox",
	"cli/internal/cmd/serve":    "cli/internal/cmdutil cli/internal/localcloud sandbox/local internal/cloud internal/cloud/engine internal/cloud/engine/kubelink internal/cloud/localtls internal/cloud/network internal/privatedir",
	"cli/internal/cmd/snapshot": "cli/internal/cmdutil sandbox",
	"cli/internal/cmd/template": "api cli/internal/cmdutil sandbox/template",
	"cli/internal/cmd/version":  "cli/internal/cmdutil",
	"cli/internal/cmd/volume":   "api cli/internal/cmdutil cli/internal/transfer sandbox",
	"cli/internal/ci":           "",
	"cli/internal/cmdtest":      "cli/internal/cmdutil internal/gen/filesystem internal/gen/process internal/must internal/patience internal/pipetest sandbox",
	"cli/internal/cmdutil":      "api cli/internal/ci cli/internal/localcloud cli/internal/tracing sandbox sandbox/local internal/cloud/engine/kubelink internal/protocol",
	"cli/internal/localcloud":   "api sandbox internal/cloud/store internal/cloud/volumes internal/privatedir",
	"cli/internal/mcpserver":    "cli/internal/cmdutil sandbox sandbox/agent sandbox/agent/agentmcp internal/clip internal/cloud/connlimit internal/lazyregexp internal/protocol",
	"cli/internal/mirror":       "cli/internal/transfer sandbox internal/archive",
	"cli/internal/sshserver":    "sandbox internal/clip",
	"cli/internal/tracing":      "sandbox sandbox/otel",
	"cli/internal/transfer":     "cli/internal/cmdutil sandbox internal/shell",

	"examples/build":                    "sandbox sandbox/local",
	"examples/ci":                       "",
	"examples/cluster":                  "sandbox sandbox/local",
	"examples/codeagent":                "examples/codeagent/loop sandbox sandbox/agent sandbox/local state",
	"examples/codeagent/loop":           "sandbox sandbox/agent state",
	"examples/codeagent/loop/modeltest": "examples/codeagent/loop sandbox",
	"examples/dockerexecutor":           "examples/codeagent/loop sandbox sandbox/agent sandbox/local sandbox/template state",
	"examples/internal/leak":            "sandbox sandbox/local sandbox/sandboxtest",
	"examples/keyless":                  "sandbox sandbox/local",
	"examples/many":                     "sandbox sandbox/local",
	"examples/mcp":                      "sandbox sandbox/agent sandbox/agent/agentmcp sandbox/local",
	"examples/multiagent":               "examples/codeagent/loop sandbox sandbox/agent sandbox/local state",
	"examples/observability":            "sandbox sandbox/agent sandbox/local sandbox/otel",
	"examples/prepared":                 "api sandbox sandbox/local sandbox/template",
	"examples/preview":                  "sandbox sandbox/local",
	"examples/quickstart":               "sandbox sandbox/agent sandbox/local state",
	"examples/quickstart/wheels":        "",
	"examples/resume":                   "sandbox sandbox/agent sandbox/local state",
	"examples/secrettool":               "sandbox sandbox/agent sandbox/local",
	"examples/shell":                    "sandbox sandbox/local",
	"examples/stream":                   "sandbox sandbox/local",
	"examples/strong":                   "sandbox sandbox/local",
	"examples/tutorial":                 "sandbox sandbox/agent sandbox/local state",
	"examples/wasmexecutor":             "examples/codeagent/loop sandbox sandbox/agent sandbox/local",
	"examples/wholeagent":               "sandbox sandbox/local",

	"internal": "",
	"internal/bench": "api sandbox sandbox/agent sandbox/local sandbox/template state internal/cloud/child internal/cloud/control internal/cloud/engine internal/cloud/engine/room" +
		" internal/cloud/kernel/python internal/cloud/lifecycle internal/cloud/lifecycle/lifecycletest internal/cloud/store internal/gen/process internal/gen/process/processconnect",
	"internal/e2e":               "internal/pinned",
	"internal/exampletest":       "sandbox/local sandbox/sandboxtest",
	"internal/interop":           "internal/pinned",
	"internal/packaging":         "internal/cloud/engine/guest",
	"internal/packaging/image":   "internal/packaging",
	"internal/packaging/release": "internal/packaging",
	"internal/pinned":            "internal/cloud/pyenv internal/cloud/setupdir",
	"internal/readme":            "",
	"internal/realservice":       "internal/cloud/envd internal/jupyter internal/pinned internal/protocol",
	"internal/testdeps": "internal/cloud/gvisorenv internal/cloud/kernel/kerneltest internal/cloud/pyenv internal/cloud/wasmenv internal/e2e internal/interop" +
		" internal/cloud/engine/kubetest internal/pinned internal/realservice",

	"internal/archive":                          "",
	"internal/boundjson":                        "",
	"internal/calltest":                         "",
	"internal/boundproto":                       "",
	"internal/clienttest":                       "",
	"internal/clip":                             "",
	"internal/gen":                              "",
	"internal/gen/filesystem":                   "",
	"internal/gen/filesystem/filesystemconnect": "internal/gen/filesystem",
	"internal/gen/process":                      "",
	"internal/gen/process/processconnect":       "internal/gen/process",
	"internal/fdtest":                           "internal/must",
	"internal/httpwait":                         "",
	"internal/memtest":                          "",
	"internal/must":                             "",
	"internal/patience":                         "",
	"internal/jupyter":                          "internal/boundjson",
	"internal/jupyter/jupytertest":              "internal/jupyter",
	"internal/kernelconn":                       "api internal/boundjson internal/clip internal/jupyter internal/protocol",
	"internal/lazyregexp":                       "",
	"internal/pip":                              "internal/clip internal/lazyregexp",
	"internal/privatedir":                       "",
	"internal/protocol":                         "",
	"internal/pyshim":                           "",
	"internal/pipetest":                         "",
	"internal/relaytest":                        "internal/must",
	"internal/runhost":                          "internal/jupyter internal/kernelconn",
	"internal/shell":                            "",
	"internal/testrun":                          "internal/cloud/engine/room/orphan",

	"internal/cloud": "internal/cloud/builds internal/cloud/connlimit internal/cloud/control internal/cloud/edge internal/cloud/engine" +
		" internal/cloud/engine/docker internal/cloud/engine/guest internal/cloud/engine/kubelink internal/cloud/engine/room internal/cloud/engine/room/cgroup internal/cloud/engine/wasm internal/cloud/envdclient internal/cloud/headers internal/cloud/image internal/cloud/layers internal/cloud/lifecycle internal/cloud/mounts internal/cloud/network" +
		" internal/cloud/pyenv internal/cloud/reexec internal/cloud/requestlog internal/cloud/secrets internal/cloud/store internal/cloud/telemetry internal/cloud/templates" +
		" internal/cloud/engine/gvisor internal/cloud/gvisorenv internal/cloud/localtls internal/cloud/volumes internal/cloud/wasmenv internal/privatedir" +
		" internal/protocol",
	"internal/cloud/builds": "internal/clip internal/cloud/engine internal/cloud/engine/guest internal/cloud/envdclient internal/cloud/image internal/cloud/layers internal/cloud/lifecycle internal/cloud/network" +
		" internal/cloud/store internal/cloud/templates internal/lazyregexp internal/protocol",
	"internal/cloud/child":     "",
	"internal/cloud/connlimit": "",
	"internal/cloud/control": "internal/clip internal/cloud/builds internal/cloud/connlimit internal/cloud/engine internal/cloud/image internal/cloud/layers internal/cloud/lifecycle internal/cloud/mounts internal/cloud/network" +
		" internal/cloud/ordered internal/cloud/requestlog internal/cloud/secrets internal/cloud/shortage internal/cloud/store internal/cloud/telemetry internal/cloud/templates internal/cloud/volumes internal/protocol",
	"internal/cloud/edge":                     "internal/cloud/connlimit internal/cloud/requestlog internal/protocol",
	"internal/cloud/engine":                   "internal/cloud/engine/guest",
	"internal/cloud/engine/docker":            "internal/clip internal/cloud/engine internal/cloud/engine/guest internal/cloud/engine/link internal/cloud/engine/tunnel internal/cloud/linuxprogram internal/cloud/mounts",
	"internal/cloud/engine/docker/dockertest": "internal/cloud/engine/enginetest internal/must internal/patience",
	"internal/cloud/engine/enginetest":        "",
	"internal/cloud/engine/guest":             "",
	"internal/cloud/engine/kubelink":          "internal/cloud/engine",
	"internal/cloud/engine/kubetest": "internal/clip internal/cloud/child internal/cloud/engine/docker/dockertest internal/cloud/engine/guest internal/cloud/engine/link internal/cloud/engine/room/cgroup" +
		" internal/cloud/hostprogram internal/cloud/linuxprogram internal/cloud/setupdir internal/must internal/patience internal/pinned internal/privatedir",
	"internal/cloud/engine/guest/login": "internal/shell",
	"internal/cloud/engine/link":        "internal/cloud/engine internal/protocol",
	"internal/cloud/engine/refusetest":  "",
	"internal/cloud/engine/room": "internal/cloud/engine internal/cloud/engine/guest internal/cloud/engine/link internal/cloud/engine/room/capability" +
		" internal/cloud/engine/room/cgroup internal/cloud/engine/room/counter internal/cloud/engine/room/hello" +
		" internal/cloud/engine/room/halt internal/cloud/engine/room/holder internal/cloud/engine/room/instance internal/cloud/engine/room/landlock" +
		" internal/cloud/engine/room/layer internal/cloud/engine/room/orphan internal/cloud/engine/room/place internal/cloud/engine/room/saved" +
		" internal/cloud/engine/room/seccomp internal/cloud/engine/room/spawn internal/cloud/engine/room/wire" +
		" internal/cloud/hostprogram internal/cloud/mounts internal/cloud/pty internal/cloud/shortage internal/cloud/survey internal/protocol",
	"internal/cloud/engine/room/capability": "",
	"internal/cloud/engine/room/cgroup":     "internal/cloud/engine",
	"internal/cloud/engine/room/chaintest":  "",
	"internal/cloud/engine/room/counter":    "internal/cloud/engine/room/cgroup",
	"internal/cloud/engine/room/escapetest": "internal/must",
	"internal/cloud/engine/room/imagetest":  "internal/cloud/engine/guest internal/cloud/engine/room/layer internal/must internal/pinned",
	"internal/cloud/engine/room/hello":      "internal/cloud/engine/guest",
	"internal/cloud/engine/room/halt":       "",
	"internal/cloud/engine/room/holder":     "internal/cloud/engine/room/seccomp",
	"internal/cloud/engine/room/inside": "internal/cloud/child internal/cloud/engine/guest internal/cloud/engine/guest/login internal/cloud/engine/link internal/cloud/engine/room/capability" +
		" internal/cloud/engine/room/cgroup internal/cloud/engine/room/counter internal/cloud/engine/room/hello internal/cloud/shortage" +
		" internal/cloud/engine/room/holder" +
		" internal/cloud/engine/room/instance internal/cloud/engine/room/landlock internal/cloud/engine/room/layer" +
		" internal/cloud/engine/room/orphan internal/cloud/engine/room/place internal/cloud/engine/room/saved" +
		" internal/cloud/engine/room/seccomp internal/cloud/engine/room/spawn internal/cloud/engine/room/wire internal/cloud/engine/tunnel" +
		" internal/cloud/kernel/python internal/cloud/pty internal/protocol",
	"internal/cloud/engine/room/instance": "internal/cloud/engine/room/cgroup internal/cloud/engine/room/place",
	"internal/cloud/engine/room/landlock": "",
	"internal/cloud/engine/room/layer":    "",
	"internal/cloud/engine/room/orphan":   "",
	"internal/cloud/engine/room/place":    "",
	"internal/cloud/engine/room/saved":    "",
	"internal/cloud/engine/room/seccomp":  "",
	"internal/cloud/engine/room/spawn":    "internal/cloud/engine/guest internal/cloud/engine/room/hello",
	"internal/cloud/engine/room/wire": "internal/cloud/engine/guest internal/cloud/engine/link internal/cloud/engine/room/counter" +
		" internal/cloud/engine/room/hello internal/cloud/engine/room/place",
	"internal/cloud/engine/tunnel": "internal/clip internal/cloud/engine internal/cloud/engine/guest internal/cloud/engine/link",
	"internal/cloud/engine/gvisor": "internal/cloud/engine internal/cloud/gvisorenv",
	"internal/cloud/engine/wasm":   "internal/cloud/engine internal/cloud/engine/guest internal/cloud/wasmenv internal/protocol",
	"internal/cloud/envd": "internal/clip internal/cloud/child internal/cloud/engine/guest internal/cloud/pty internal/cloud/treecopy internal/lazyregexp" +
		" internal/gen/filesystem internal/gen/filesystem/filesystemconnect internal/gen/process" +
		" internal/gen/process/processconnect internal/protocol internal/shell",
	"internal/cloud/envd/envdtest":        "internal/cloud/envd internal/must",
	"internal/cloud/envdclient":           "internal/clip internal/gen/process internal/gen/process/processconnect internal/lazyregexp internal/protocol",
	"internal/cloud/gvisorenv":            "internal/clip internal/cloud/hostprogram internal/cloud/setupdir internal/cloud/shortage internal/privatedir",
	"internal/cloud/gvisorenv/gvisortest": "internal/cloud/engine/enginetest internal/cloud/gvisorenv internal/pinned",
	"internal/cloud/headers":              "internal/cloud/network",
	"internal/cloud/hostprogram":          "",
	"internal/cloud/image":                "internal/boundjson internal/cloud/layers internal/cloud/network internal/cloud/store",
	"internal/cloud/interpreter": "internal/cloud/child internal/cloud/kernel internal/cloud/kernel/python" +
		" internal/cloud/kernel/zmq internal/jupyter internal/lazyregexp internal/protocol",
	"internal/cloud/kernel":                  "internal/clip internal/cloud/child internal/cloud/kernel/link internal/cloud/kernel/zmq internal/jupyter",
	"internal/cloud/kernel/kerneltest":       "internal/cloud/pyenv internal/pinned",
	"internal/cloud/kernel/link":             "internal/jupyter",
	"internal/cloud/kernel/python":           "",
	"internal/cloud/kernel/zmq":              "internal/cloud/child internal/cloud/kernel/link internal/jupyter internal/lazyregexp internal/shell",
	"internal/cloud/layers":                  "internal/cloud/store",
	"internal/cloud/lifecycle":               "internal/clip internal/cloud/engine internal/cloud/layers internal/cloud/mounts internal/cloud/network internal/cloud/ordered internal/cloud/store",
	"internal/cloud/lifecycle/lifecycletest": "internal/cloud/engine internal/cloud/layers internal/cloud/lifecycle internal/cloud/network",
	"internal/cloud/linuxprogram":            "internal/clip internal/cloud/hostprogram internal/cloud/setupdir internal/privatedir",
	"internal/cloud/linuxprogram/contained":  "internal/cloud/reexec",
	"internal/cloud/localtls":                "internal/cloud/connlimit",
	"internal/cloud/mounts":                  "internal/clip internal/cloud/engine internal/cloud/engine/room/spawn",
	"internal/cloud/network":                 "",
	"internal/cloud/ordered":                 "",
	"internal/cloud/pty":                     "",
	"internal/cloud/pyenv":                   "internal/cloud/hostprogram internal/cloud/setupdir internal/cloud/shortage internal/lazyregexp internal/shell",
	"internal/cloud/reexec": "internal/clip internal/cloud/child internal/cloud/engine/guest internal/cloud/engine/guest/login internal/cloud/engine/room/inside" +
		" internal/cloud/envd internal/cloud/interpreter internal/cloud/kernel internal/cloud/network internal/cloud/wasmenv internal/protocol",
	"internal/cloud/requestlog":       "",
	"internal/cloud/secrets":          "internal/cloud/ordered internal/cloud/store",
	"internal/cloud/setupdir":         "",
	"internal/cloud/shortage":         "",
	"internal/cloud/store":            "",
	"internal/cloud/store/storetest":  "internal/cloud/store internal/must",
	"internal/cloud/templates":        "internal/clip internal/cloud/engine internal/cloud/engine/guest internal/cloud/layers internal/cloud/ordered internal/cloud/store internal/lazyregexp",
	"internal/cloud/survey":           "",
	"internal/cloud/treecopy":         "",
	"internal/cloud/telemetry":        "internal/clip internal/cloud/engine",
	"internal/cloud/volumes":          "internal/cloud/hostprogram internal/cloud/store internal/protocol",
	"internal/cloud/wasmenv/wasmtest": "internal/cloud/engine/enginetest internal/cloud/wasmenv internal/pinned",
	"internal/cloud/wasmenv":          "internal/clip internal/cloud/hostprogram internal/cloud/kernel/python internal/cloud/setupdir internal/privatedir internal/protocol",
}

// TestImports holds the packages to the picture.
func TestImports(t *testing.T) {
	t.Parallel()
	statSources(t)
	found := map[string]map[string]bool{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, system) {
			name := relative(p.ImportPath)
			if found[name] == nil {
				found[name] = map[string]bool{}
			}
			for _, imported := range p.Imports {
				if imported == module || strings.HasPrefix(imported, module+"/") {
					found[name][relative(imported)] = true
				}
			}
		}
	}
	if len(found) < 40 {
		t.Fatalf("go list knows only %d packages", len(found))
	}
	for name, arrows := range found {
		allowed, known := imports[name]
		if !known {
			t.Errorf("the package %s is not in the picture: say here what it imports (now: %v)", name, sorted(arrows))
			continue
		}
		drawn := map[string]bool{}
		for _, imported := range strings.Fields(allowed) {
			drawn[imported] = true
			if !arrows[imported] {
				t.Errorf("%s no longer imports %s: remove it here", name, imported)
			}
		}
		for imported := range arrows {
			if !drawn[imported] {
				t.Errorf("%s imports %s, which is not in the picture", name, imported)
			}
		}
	}
	for name := range imports {
		if found[name] == nil {
			t.Errorf("the package %s is in the picture and not in the module", name)
		}
	}
}

// TestClientLinksNoCloud checks that a program that only talks to a remote
// service links no container, network or kernel code.
func TestClientLinksNoCloud(t *testing.T) {
	t.Parallel()
	var reach func(name string, path []string)
	seen := map[string]bool{}
	reach = func(name string, path []string) {
		if seen[name] {
			return
		}
		seen[name] = true
		path = append(slices.Clone(path), name)
		if name == "internal/cloud" || strings.HasPrefix(name, "internal/cloud/") {
			t.Errorf("a client links %s: %s", name, strings.Join(path, " → "))
			return
		}
		for _, imported := range strings.Fields(imports[name]) {
			reach(imported, path)
		}
	}
	for _, client := range []string{"api", "sandbox", "sandbox/template", "state"} {
		reach(client, nil)
	}
}

// optional lists the few packages of this module that may import a large dependency, by the prefix
// of its import paths. All others have hooks, so that most programs link nothing of it.
var optional = map[string][]string{
	"go.opentelemetry.io/":                    {"cli/internal/tracing", "examples/observability", "sandbox/otel"},
	"golang.org/x/crypto/ssh":                 {"cli/internal/sshserver"},
	"github.com/pkg/sftp":                     {"cli/internal/sshserver"},
	"github.com/modelcontextprotocol/go-sdk/": {"cli/internal/mcpserver", "examples/mcp", "internal/bench", "sandbox/agent/agentmcp"},
}

// TestOnlyFewImportTheOptional checks that a program that traces nothing links nothing of
// OpenTelemetry, one without package agentmcp nothing of the Model Context Protocol, and only the
// command links SSH.
func TestOnlyFewImportTheOptional(t *testing.T) {
	t.Parallel()
	statSources(t)
	packages := list(t, "linux")
	var reach func(name string)
	reached := map[string]bool{}
	reach = func(name string) {
		if !reached[name] {
			reached[name] = true
			for _, imported := range strings.Fields(imports[name]) {
				reach(imported)
			}
		}
	}
	for _, core := range []string{"api", "sandbox", "sandbox/agent", "sandbox/local", "sandbox/sandboxtest", "state"} {
		reach(core)
	}
	for prefix, few := range optional {
		var found []string
		for _, p := range packages {
			if slices.ContainsFunc(p.Imports, func(path string) bool { return strings.HasPrefix(path, prefix) }) {
				found = append(found, relative(p.ImportPath))
			}
		}
		if slices.Sort(found); !slices.Equal(found, few) {
			t.Errorf("%v import %s, want %v", found, prefix, few)
		}
		for _, name := range few {
			if reached[name] {
				t.Errorf("the core links %s, want only hooks there", name)
			}
		}
	}
}

// TestRoomIsCut checks that the code of the server and the code inside a sandbox
// share only the messages and topics between them, and that the cloud gets the
// inside code in one place, and the program of containers in another.
func TestRoomIsCut(t *testing.T) {
	t.Parallel()
	const room, inside, reexec = "internal/cloud/engine/room", "internal/cloud/engine/room/inside", "internal/cloud/reexec"
	only := map[string][]string{inside: {reexec}, reexec: {"internal/cloud", "internal/cloud/linuxprogram/contained"}}
	for name, imported := range imports {
		for _, arrow := range strings.Fields(imported) {
			if by, bound := only[arrow]; bound && !slices.Contains(by, name) {
				t.Errorf("%s imports %s, which only %v may", name, arrow, by)
			}
			if arrow == room && strings.HasPrefix(name, room+"/") {
				t.Errorf("%s imports the server's half", name)
			}
		}
	}
}

// statSources calls stat on each source file of the module. Go caches the result of
// a test until a file that the test looked at has changed, and does not notice the
// files that go list reads.
func statSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".." {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	})
	must.Do(t, err)
}

type listed struct {
	ImportPath string
	Imports    []string
}

// list asks go for the packages for a system.
func list(t *testing.T, system string) []listed {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...")
	command.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v: %s", system, err, stderr.String())
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		must.Do(t, err)
		packages = append(packages, p)
	}
}

// relative returns a path of this module without the module's own path.
func relative(path string) string {
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), ".")
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
