package kernelconn

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Environment variables go to a Python kernel as data inside a silent
// execution that leaves no name behind.

// completeEnvs sets the variables that are missing: the kernel of a remote
// service does not have the sandbox's environment until a client sets it.
func completeEnvs(envs map[string]string) string {
	return withEnvs(envs, "for k, v in new.items(): os.environ.setdefault(k, v)")
}

// replaceEnvs sets variables and remembers their previous values.
func replaceEnvs(envs map[string]string) string {
	return withEnvs(envs, "sys._e2bctl_env = {k: os.environ.get(k) for k in new}", "os.environ.update(new)")
}

// restoreEnvs undoes replaceEnvs.
var restoreEnvs = python("import os, sys",
	"for k, v in sys.__dict__.pop('_e2bctl_env', {}).items():",
	"    if v is None: os.environ.pop(k, None)",
	"    else: os.environ[k] = v")

func withEnvs(envs map[string]string, lines ...string) string {
	data, _ := json.Marshal(envs) // strings always encode
	load := "new = json.loads(base64.b64decode('" + base64.StdEncoding.EncodeToString(data) + "'))"
	return python(append([]string{"import base64, json, os, sys", load}, lines...)...)
}

// python returns code that runs lines in a namespace of its own.
func python(lines ...string) string {
	text := base64.StdEncoding.EncodeToString([]byte(strings.Join(lines, "\n")))
	return "exec(__import__('base64').b64decode('" + text + "').decode(), {})"
}

// silently returns a request that leaves no trace in history or count.
func silently(code string) jupyter.ExecuteRequest {
	return jupyter.ExecuteRequest{Code: code, Silent: true}
}
