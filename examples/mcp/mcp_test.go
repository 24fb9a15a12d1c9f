package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// serveVariable makes the binary of the tests serve the tools, as mcp -serve does.
const serveVariable = "EXAMPLE_MCP_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		if err := serve(context.Background(), &mcp.StdioTransport{}); err != nil {
			panic(err)
		}
		return
	}
	m.Run()
}

// Code calls the tools of the example's own server, and those of a server that a command starts.
func TestMCP(t *testing.T) {
	sandboxtest.New(t).Setenv(t)
	t.Setenv(serveVariable, "1") // for the command
	for name, test := range map[string]struct {
		options options
		want    string // part of the output or of the error
	}{
		"in this process": {options{code: snippet, allow: "find,price"}, "{'blueberry': 0.1, 'strawberry': 0.25}"},
		"a command":       {options{code: snippet, allow: "find,price", command: []string{os.Args[0]}}, "{'blueberry': 0.1, 'strawberry': 0.25}"},
		"unknown fruit":   {options{code: "server_price(fruit='leek')", allow: "price"}, `ToolError: server_price: price: no price for "leek"`},
		"not allowed":     {options{code: "server_find(word='')", allow: "price"}, "NameError: name 'server_find' is not defined"},
		"no such tool":    {options{code: snippet, allow: "sell"}, "sell"},
		"no such command": {options{code: snippet, allow: "find", command: []string{"/nowhere/server"}}, "/nowhere/server"},
		"on this machine": {options{here: true, code: "server_find(word='fig')", allow: "find"}, "['fig']"},
	} {
		t.Run(name, func(t *testing.T) {
			var shown strings.Builder
			if err := start(t.Context(), &shown, &test.options); err != nil {
				shown.WriteString(err.Error())
			}
			if !strings.Contains(shown.String(), test.want) {
				t.Errorf("no %q in what it shows:\n%s", test.want, shown.String())
			}
		})
	}
}
