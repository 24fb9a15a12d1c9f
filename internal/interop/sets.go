package interop

import (
	"embed"
	"maps"
	"runtime"
	"slices"

	"github.com/e2bctl/e2bctl/internal/pinned"
)

//go:embed js/*/package.json js/*/package-lock.json python/*/requirements.txt
var pins embed.FS

// The packages that the tests need: the official SDKs, keyed by generation, and libraries that use
// these SDKs.
var (
	jsSets = map[string]pinned.Set{
		"newest": pinned.NPM("js-newest", pinned.Folder(pins, "js/newest")),
		"2.45":   pinned.NPM("js-2.45", pinned.Folder(pins, "js/2.45")),
	}
	pythonSets = map[string]pinned.Set{
		"newest":        pinned.Python("python-newest", pinned.Folder(pins, "python/newest")),
		"2.45":          pinned.Python("python-2.45", pinned.Folder(pins, "python/2.45")),
		"others":        pinned.Python("python-others", pinned.Folder(pins, "python/others")),
		"pytest":        pinned.Python("python-pytest", pinned.Folder(pins, "python/pytest")),
		"openai-agents": pinned.Python("python-openai-agents", pinned.Folder(pins, "python/openai-agents")),
	}
	// NewestPython has the newest SDK for Python, for the tests of other modules.
	NewestPython = pythonSets["newest"]
	// Pytest has pytest, for the fixture of the Python package e2bctl.
	Pytest = pythonSets["pytest"]
	// NewestJS has the newest SDK for JavaScript, for the tests of other packages. It needs [Node].
	NewestJS = jsSets["newest"]
	// Node is the Node.js that the newest JavaScript SDK needs. It is newer than Debian's Node.js.
	Node = pinned.NPM("node", pinned.Folder(pins, "js/node"))
	// MCP contains the inspector and the conformance tests of the Model Context Protocol, for the
	// tests of e2bctl mcp.
	MCP = pinned.NPM("mcp", pinned.Folder(pins, "js/mcp"))
	// Vitest has vitest and TypeScript, for the package e2bctl of npm.
	Vitest = pinned.NPM("vitest", pinned.Folder(pins, "js/vitest"))
	// Jest has jest, for the same package.
	Jest = pinned.NPM("jest", pinned.Folder(pins, "js/jest"))
	// Verdaccio is a registry of npm, from which that package is installed. It needs [Node].
	Verdaccio = pinned.NPM("verdaccio", pinned.Folder(pins, "js/verdaccio"))
)

// Sets returns all sets of packages, for make deps.
func Sets() []pinned.Set {
	var sets []pinned.Set
	if hasNode() {
		sets = append(sets, Node, MCP, Vitest, Jest, Verdaccio)
	}
	for _, some := range []map[string]pinned.Set{jsSets, pythonSets} {
		sets = slices.AppendSeq(sets, maps.Values(some))
	}
	return sets
}

// hasNode reports whether the pinned Node.js runs on this machine. If not, the tests use the
// machine's own Node.js.
func hasNode() bool { return runtime.GOOS+"/"+runtime.GOARCH == "linux/amd64" }
