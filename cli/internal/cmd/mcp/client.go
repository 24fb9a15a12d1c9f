package mcp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/api"
)

// client describes a program, such as an editor, that starts servers of the Model Context Protocol.
type client struct {
	name, title string
	format      format
	home        func() (string, error) // returns the path of the user's configuration
	// the path of a project's configuration file, relative to the project's directory
	project     string
	next        string // the user's next step after an installation
	nextProject string // the user's next step after an installation in a project
	// isolated means that the client's servers get only the variables that their entries name.
	isolated bool
}

// clientNames returns the names of the clients in the order of the help.
func clientNames() []string { return []string{"claude", "cursor", "codex", "vscode", "gemini"} }

// findClient returns the client with that name.
func findClient(name string) (client, bool) {
	switch name {
	case "claude":
		return client{
			name: name, title: "Claude Code", project: ".mcp.json", home: claudeFile,
			format:      &jsonFormat{servers: "mcpServers", isTyped: true, isStrict: true, reference: "${%s}"},
			next:        "start Claude Code anew: /mcp lists the server",
			nextProject: "start claude in this directory and allow the server: /mcp lists it",
		}, true
	case "cursor":
		return client{
			name: name, title: "Cursor", project: filepath.Join(".cursor", "mcp.json"), home: under(os.UserHomeDir, ".cursor", "mcp.json"),
			format:      &jsonFormat{servers: "mcpServers", reference: "${env:%s}"},
			next:        "turn the server on in Cursor: Cursor Settings, MCP",
			nextProject: "open this directory in Cursor and turn the server on: Cursor Settings, MCP",
		}, true
	case "codex":
		return client{
			name: name, title: "Codex", project: filepath.Join(".codex", "config.toml"), home: codexFile, isolated: true,
			format:      &tomlFormat{servers: "mcp_servers"},
			next:        "start Codex anew: /mcp lists the server",
			nextProject: "start codex in this directory and trust the project: /mcp lists the server",
		}, true
	case "vscode":
		return client{
			name: name, title: "VS Code", project: filepath.Join(".vscode", "mcp.json"), home: vscodeFile,
			format:      &jsonFormat{servers: "servers", isTyped: true, reference: "${env:%s}"},
			next:        "start the server in VS Code: Command Palette, MCP: List Servers",
			nextProject: "open this directory in VS Code and start the server: Command Palette, MCP: List Servers",
		}, true
	case "gemini":
		return client{
			name: name, title: "Gemini CLI", project: filepath.Join(".gemini", "settings.json"), home: geminiFile,
			format:      &jsonFormat{servers: "mcpServers", reference: "$%s"},
			next:        "start Gemini CLI anew: /mcp lists the server",
			nextProject: "start gemini in this directory and trust the folder: /mcp lists the server",
		}, true
	}
	return client{}, false
}

// file returns the absolute path of the client's configuration file. With isProject that is the
// file of the project in the current directory, and otherwise the file of the user.
func (c client) file(isProject bool) (string, error) {
	if isProject {
		return filepath.Abs(c.project)
	}
	file, err := c.home()
	if err != nil {
		return "", fmt.Errorf("find the configuration of %s: %w; set that, or use --project", c.title, err)
	}
	return filepath.Abs(file)
}

// under returns a function that returns the path of a file below a directory.
func under(dir func() (string, error), below ...string) func() (string, error) {
	return func() (string, error) {
		found, err := dir()
		return filepath.Join(append([]string{found}, below...)...), err
	}
}

func claudeFile() (string, error) {
	if dir := os.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, ".claude.json"), nil
	}
	return under(os.UserHomeDir, ".claude.json")()
}

func codexFile() (string, error) {
	if dir := os.Getenv("CODEX_HOME"); dir != "" {
		return filepath.Join(dir, "config.toml"), nil
	}
	return under(os.UserHomeDir, ".codex", "config.toml")()
}

// vscodeFile returns the path of the configuration file in the default profile of VS Code.
func vscodeFile() (string, error) {
	if dir := os.Getenv("VSCODE_PORTABLE"); dir != "" {
		return filepath.Join(dir, "user-data", "User", "mcp.json"), nil
	}
	if dir := os.Getenv("VSCODE_APPDATA"); dir != "" {
		return filepath.Join(dir, "Code", "User", "mcp.json"), nil
	}
	return under(os.UserConfigDir, "Code", "User", "mcp.json")()
}

func geminiFile() (string, error) {
	if dir := os.Getenv("GEMINI_CLI_HOME"); dir != "" {
		return filepath.Join(dir, ".gemini", "settings.json"), nil
	}
	return under(os.UserHomeDir, ".gemini", "settings.json")()
}

// variables returns the names of the environment variables that the client must pass on to the
// server: the variables of the service and, for an isolated client, also the variables by which
// e2bctl finds the local cloud, and the proxy variables. Only variables that are set now are
// included. With withKey, the variable of the key is included even if it is not set.
func (c client) variables(withKey bool) []string {
	candidates := []string{api.EnvAPIKey, api.EnvAPIURL, api.EnvDomain, api.EnvSandboxURL, api.EnvVolumeURL}
	if c.isolated { // also the variables that lead to the local cloud, and those of proxies
		candidates = append(candidates, "E2BCTL_LOCAL", "E2BCTL_PYTHON", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
	}
	var names []string
	for _, name := range candidates {
		if os.Getenv(name) != "" || withKey && name == api.EnvAPIKey {
			names = append(names, name)
		}
	}
	return names
}

// hasKey reports whether an argument of the server contains an API key, either the key in the
// environment or another one.
func hasKey(argument string) bool {
	const shortest = 8 // a shorter one may be part of any word
	if key := os.Getenv(api.EnvAPIKey); len(key) >= shortest && strings.Contains(argument, key) {
		return true
	}
	for rest := argument; ; {
		_, after, found := strings.Cut(rest, "e2b_")
		if !found {
			return false
		}
		if len(after)-len(strings.TrimLeft(after, "0123456789abcdefABCDEF")) >= 32 {
			return true
		}
		rest = after
	}
}
