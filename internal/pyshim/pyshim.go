package pyshim

import (
	_ "embed"
	"strconv"
	"strings"
)

// MIME is the MIME type with which a kernel sends a document of package state to the host, as text.
const MIME = "application/vnd.e2bctl.value+json"

// Codec is the Python part of the codec of package state. It contains the functions encode and
// decode.
//
//go:embed codec.py
var Codec string

//go:embed state.py
var stateSource string

//go:embed tools.py
var toolsSource string

//go:embed guard.py
var guardSource string

//go:embed install.py
var installSource string

const (
	stateModule = "_e2bctl_state"
	toolsModule = "_e2bctl_tools"
	guardModule = "_e2bctl_guard"
)

// Install returns code that installs the modules in a kernel that does not have them. It does not
// install the guard.
func Install() string {
	return install(`"_e2bctl_codec": ` + literal(Codec) + `, "` + stateModule + `": ` + literal(stateSource) + `, "` + toolsModule + `": ` + literal(toolsSource))
}

// InstallGuard returns the code that installs the guard in a kernel that has the other
// modules.
func InstallGuard() string { return install(`"` + guardModule + `": ` + literal(guardSource)) }

func install(sources string) string {
	return "exec(" + literal(installSource) + `, {"sources": {` + sources + "}})"
}

// NotInstalled reports whether a [Call] failed because the kernel does not have the modules. name
// and value are the name and the value of the exception.
func NotInstalled(name, value string) bool {
	return name == "KeyError" && strings.Contains(value, stateModule)
}

// GuardNotInstalled is like [NotInstalled], for a [CallGuard].
func GuardNotInstalled(name, value string) bool {
	return name == "KeyError" && strings.Contains(value, guardModule)
}

// Call returns the Python expression that calls a function of the state module. Each argument must
// be a string, an int or an int64.
func Call(function string, args ...any) string { return call(stateModule, function, args) }

// CallTools is like [Call], for a function of the tools module.
func CallTools(function string, args ...any) string { return call(toolsModule, function, args) }

// CallGuard is like [Call], for a function of the guard.
func CallGuard(function string, args ...any) string { return call(guardModule, function, args) }

func call(module, function string, args []any) string {
	list := make([]string, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			list[i] = literal(arg)
		case int:
			list[i] = strconv.Itoa(arg)
		case int64:
			list[i] = strconv.FormatInt(arg, 10)
		default:
			panic("pyshim: an argument that is neither string nor integer")
		}
	}
	return `__import__("sys").modules["` + module + `"].` + function + "(" + strings.Join(list, ", ") + ")"
}

// literal returns s as a Python literal. s must be valid UTF-8. literal uses Go's escapes for
// ASCII, which are also valid in Python.
func literal(s string) string { return strconv.QuoteToASCII(s) }
