package code

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/shell"
)

// languageOf returns the language of a file by its name, or "" for the language of
// the context, which is Python by default.
func languageOf(file string) string {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".js", ".mjs", ".cjs":
		return "javascript"
	case ".ts", ".mts":
		return "typescript"
	case ".sh", ".bash":
		return "bash"
	case ".r":
		return "r"
	case ".java":
		return "java"
	}
	return ""
}

func isPython(language string) bool { return language == "" || strings.EqualFold(language, "python") }

// argumentsCode returns code that sets the program's name and arguments as the language's
// interpreter would set them. The user's code runs after it.
func argumentsCode(language, name string, arguments []string) (string, error) {
	if isPython(language) {
		return "import sys\nsys.argv = [" + literals(name, arguments) + "]", nil
	}
	switch strings.ToLower(language) {
	case "javascript", "js", "typescript", "ts":
		// The first element is the program, which stays.
		return "process.argv.splice(1, process.argv.length, " + literals(name, arguments) + ")", nil
	case "bash":
		words := make([]string, len(arguments))
		for i, argument := range arguments {
			words[i] = shell.Quote(argument)
		}
		return "set -- " + strings.Join(words, " "), nil
	}
	return "", fmt.Errorf("arguments for %s are not supported, only for python, javascript, typescript and bash: pass values with -e", language)
}

// literals returns the name and the arguments as strings of JSON, which are also
// strings of Python and JavaScript.
func literals(name string, arguments []string) string {
	list, _ := json.Marshal(append([]string{name}, arguments...)) // strings can always be encoded
	return string(list[1 : len(list)-1])
}
