package reexec

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Config is what the server passes to the agent of a sandbox when it starts it.
type Config struct {
	SandboxID   string            `json:"sandboxId"`
	TemplateID  string            `json:"templateId"`
	AccessToken string            `json:"accessToken,omitempty"` // "" for a sandbox that is not secured
	Envs        map[string]string `json:"envs,omitempty"`        // create-time environment
	System      map[string]string `json:"system,omitempty"`      // environment that Envs cannot override
	Python      []string          `json:"python,omitempty"`      // command that runs the kernels; empty: no interpreter
	Path        string            `json:"path"`                  // PATH of every process
	MemoryBytes uint64            `json:"memoryBytes,omitempty"`
	CPUs        int               `json:"cpus,omitempty"`
	Proxy       bool              `json:"proxy,omitempty"`   // programs are told of the proxy
	Offline     bool              `json:"offline,omitempty"` // everything but what is allowed is denied: retrying is of no use
}

// ProxyPort is the port on which the proxy listens inside a sandbox with a network
// of its own.
const ProxyPort = 3128

// environment returns what the service adds to the environment of every process of
// the sandbox. proxied says whether there is a proxy, temp is the directory for
// temporary files, and exists reports whether a file exists.
func (c *Config) environment(proxied bool, temp string, exists func(path string) bool) map[string]string {
	env := map[string]string{}
	maps.Copy(env, c.System)
	env["E2B_SANDBOX"] = "true"
	env["E2B_SANDBOX_ID"] = c.SandboxID
	env["E2B_TEMPLATE_ID"] = c.TemplateID
	if temp != "/tmp" { // /tmp is where programs look by default
		env["TMPDIR"] = temp
	}
	if proxied && c.Offline {
		env["PIP_RETRIES"], env["npm_config_fetch_retries"] = "0", "0"
	}
	if proxied && c.Proxy {
		proxy := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ProxyPort))
		// Some programs read only one spelling, some only the other.
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
			env[name] = proxy
		}
		for _, name := range []string{"NO_PROXY", "no_proxy"} {
			env[name] = "localhost,127.0.0.1,::1"
		}
	}
	// Python packages and Node bring certificates of their own, which do not
	// include those that the machine's owner added.
	if exists(caBundle) {
		for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
			env[name] = caBundle
		}
	}
	return env
}

// warmEnviron returns the environment of the process that kernels are forked from.
func (c *Config) warmEnviron() []string {
	env := make([]string, 0, len(c.System))
	for name, value := range c.System {
		env = append(env, name+"="+value)
	}
	return env
}

// mark writes the files by which programs recognize that they are in a sandbox,
// and in which one: root is the sandbox's root directory, run the agent's own.
func (c *Config) mark(root, run string) error {
	if err := os.MkdirAll(run, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, ".e2b"), []byte("ENV_ID="+c.TemplateID+"\nTEMPLATE_ID="+c.TemplateID+"\n"), 0o644),
		os.WriteFile(filepath.Join(run, ".E2B_SANDBOX"), []byte("true"), 0o644),
		os.WriteFile(filepath.Join(run, ".E2B_SANDBOX_ID"), []byte(c.SandboxID), 0o644),
		os.WriteFile(filepath.Join(run, ".E2B_TEMPLATE_ID"), []byte(c.TemplateID), 0o644),
	)
}

// markKernel writes the file in which clients of the stateful template, the
// interpreter's first one, look for the id of the default kernel.
func markKernel(home, id string) error {
	dir := filepath.Join(home, ".jupyter")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kernel_id"), []byte(id), 0o644)
}

const caBundle = "/etc/ssl/certs/ca-certificates.crt"
