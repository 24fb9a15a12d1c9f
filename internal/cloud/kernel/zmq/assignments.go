//go:build linux

package zmq

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// environmentOf maps a language to two functions. One returns code that sets an environment
// variable, and the other returns code that removes a variable. Languages have the same names as in
// kernelspecs.
var environmentOf = map[string]struct {
	set   func(name, value string) string
	unset func(name string) string
}{
	"bash": {
		set:   func(name, value string) string { return "export " + name + "=" + shell.Quote(value) },
		unset: func(name string) string { return "unset " + name },
	},
	"python": {
		set: func(name, value string) string {
			return "import os; os.environ[" + quoteJSON(name) + "] = " + quoteJSON(value)
		},
		unset: func(name string) string { return "import os; os.environ.pop(" + quoteJSON(name) + ", None)" },
	},
	"javascript": {
		set:   func(name, value string) string { return "process.env[" + quoteJSON(name) + "] = " + quoteJSON(value) },
		unset: func(name string) string { return "delete process.env[" + quoteJSON(name) + "]" },
	},
	"r": {
		set:   func(name, value string) string { return "Sys.setenv(" + name + " = " + quoteJSON(value) + ")" },
		unset: func(name string) string { return "Sys.unsetenv(" + quoteJSON(name) + ")" },
	},
	"java": {
		set: func(name, value string) string {
			return "System.setProperty(" + quoteJSON(name) + ", " + quoteJSON(value) + ");"
		},
		unset: func(name string) string { return "System.clearProperty(" + quoteJSON(name) + ");" },
	},
}

// variableName matches the allowed names of variables. The restriction is needed because names are
// inserted into code unchanged.
var variableName = lazyregexp.New(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// assignments returns two pieces of code: before sets the variables in env, and after restores the
// values that these variables have in environ.
func assignments(language string, env, environ map[string]string) (before, after string, err error) {
	if len(env) == 0 {
		return "", "", nil
	}
	language = strings.ToLower(language)
	if language == "typescript" {
		language = "javascript"
	}
	code, ok := environmentOf[language]
	if !ok {
		return "", "", fmt.Errorf("environment variables for one execution are not supported in %.40q; set them for the whole sandbox", language)
	}
	var set, reset []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !variableName().MatchString(name) {
			return "", "", fmt.Errorf("%.40q cannot be the name of a variable in %s", name, language)
		}
		set = append(set, code.set(name, env[name]))
		if value, ok := environ[name]; ok {
			reset = append(reset, code.set(name, value))
		} else {
			reset = append(reset, code.unset(name))
		}
	}
	return strings.Join(set, "\n"), strings.Join(reset, "\n"), nil
}

// quoteJSON returns s as a JSON string. Such a string is also a valid string in Python,
// JavaScript, R and Java.
func quoteJSON(s string) string {
	quoted, _ := json.Marshal(s)
	return string(quoted)
}
