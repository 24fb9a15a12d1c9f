package mcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/e2bctl/e2bctl/cli/internal/mcpserver"
)

// proxies is a flag value of the form NAME=COMMAND. The flag may be repeated.
type proxies []mcpserver.Proxy

func (*proxies) Type() string   { return "NAME=COMMAND" }
func (*proxies) String() string { return "" }

func (p *proxies) Set(text string) error {
	name, command, _ := strings.Cut(text, "=")
	if name == "" || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || name[0] <= '9' {
		return errors.New("want a name of letters, digits and underscores, and a command, such as github=\"github-mcp-server stdio\"")
	}
	for _, other := range *p {
		if other.Name == name {
			return fmt.Errorf("the name %s is given twice", name)
		}
	}
	lex := shell.NewLex('\\')
	lex.SkipUnsetEnv = true
	words, err := lex.ProcessWords(command, shell.EnvsFromSlice(nil))
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return errors.New("want a command behind the =")
	}
	*p = append(*p, mcpserver.Proxy{Name: name, Command: words})
	return nil
}

// proxyVariables is a repeatable flag value of the form NAME:VARIABLE.
// It lists the variables of this process that a proxied command gets.
type proxyVariables []struct{ proxy, variable string }

func (*proxyVariables) Type() string   { return "NAME:VARIABLE" }
func (*proxyVariables) String() string { return "" }

func (v *proxyVariables) Set(text string) error {
	proxy, variable, _ := strings.Cut(text, ":")
	if proxy == "" || variable == "" || strings.Contains(variable, "=") {
		return errors.New("want the name of a proxy and of a variable, such as github:GITHUB_TOKEN; its value is that of this process")
	}
	*v = append(*v, struct{ proxy, variable string }{proxy, variable})
	return nil
}

// resolved returns the proxies with their environments.
func (p proxies) resolved(variables proxyVariables) ([]mcpserver.Proxy, error) {
	for _, v := range variables {
		found := false
		for i := range p {
			if p[i].Name != v.proxy {
				continue
			}
			found = true
			value, ok := os.LookupEnv(v.variable)
			if !ok {
				return nil, fmt.Errorf("--proxy-env %s:%s: the variable is not set", v.proxy, v.variable)
			}
			p[i].Env = append(p[i].Env, v.variable+"="+value)
		}
		if !found {
			return nil, fmt.Errorf("--proxy-env %s:%s: there is no --proxy %s", v.proxy, v.variable, v.proxy)
		}
	}
	return p, nil
}

// maxAudit is a size in bytes. If the default audit file is larger when a server starts, the file is
// renamed, and a new file begins. One older file is kept. An audit file that is named by a path is
// never renamed.
const maxAudit = 64 << 20

// openAudit opens the file to which the calls of proxied tools are logged. If path is "", it opens
// the file audit.jsonl in the directory of the identity's file.
func openAudit(path string, id identity) (*os.File, error) {
	if path == "" {
		path = filepath.Join(filepath.Dir(id.path), "audit.jsonl")
		if info, err := os.Stat(path); err == nil && info.Size() > maxAudit {
			if err := os.Rename(path, path+".1"); err != nil {
				return nil, err
			}
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}
