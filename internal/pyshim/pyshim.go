package pyshim

import (
	_ "embed"
	"strconv"
	"strings"
)

// MIME is the type under which a kernel gives the host a document of the
// package state, as text.
const MIME = "application/vnd.e2bctl.value+json"

// Codec is the Python half of the package state's codec: encode and decode.
//
//go:embed codec.py
var Codec string

//go:embed state.py
var stateSource string

//go:embed tools.py
var toolsSource string

//go:embed install.py
var installSource string

// Install is the code that places the modules in a kernel that has not got
// them.
func Install() string {
	return "exec(" + literal(installSource) + `, {"sources": {"_e2bctl_codec": ` + literal(Codec) + `, "_e2bctl_state": ` + literal(stateSource) +
		`, "_e2bctl_tools": ` + literal(toolsSource) + "}})"
}

// NotInstalled tells whether a failed [Call] failed because the kernel has not
// got the modules.
func NotInstalled(name, value string) bool {
	return name == "KeyError" && strings.Contains(value, "_e2bctl_state")
}

// Call is the expression that calls a function of the state module. Arguments
// are strings and ints.
func Call(function string, args ...any) string { return call("state", function, args) }

// CallTools is [Call] of a function of the tools module.
func CallTools(function string, args ...any) string { return call("tools", function, args) }

func call(module, function string, args []any) string {
	list := make([]string, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			list[i] = literal(arg)
		case int:
			list[i] = strconv.Itoa(arg)
		default:
			panic("pyshim: an argument that is neither string nor int")
		}
	}
	return `__import__("sys").modules["_e2bctl_` + module + `"].` + function + "(" + strings.Join(list, ", ") + ")"
}

// literal gives a valid UTF-8 string as a Python literal: Go's escapes for
// ASCII are Python's as well.
func literal(s string) string { return strconv.QuoteToASCII(s) }
