package main

import (
	_ "embed"
	"testing/fstest"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

//go:embed resolve.py
var resolve []byte

// fullList stores the answers of pip and of the package index. A test uses these answers to check
// the full list of packages for sandboxes.
var fullList = pinned.Set{
	Name:     "full-list",
	Pins:     fstest.MapFS{"full.txt": {Data: []byte(pyenv.FullList())}, "resolve.py": {Data: resolve}},
	Commands: [][]string{{pinned.Interpreter, "resolve.py"}},
}
