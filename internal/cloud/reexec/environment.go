package reexec

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// environment returns the variables that E2B's service adds to the environment of every process in
// a sandbox. c is the configuration of the sandbox. proxied reports that the sandbox has a proxy.
// temp is the directory for temporary files. exists reports whether a file exists.
func environment(c *guest.Config, proxied bool, temp string, exists func(path string) bool) map[string]string {
	env := map[string]string{}
	maps.Copy(env, c.System)
	env["E2B_SANDBOX"] = "true"
	env["E2B_SANDBOX_ID"] = c.SandboxID
	env["E2B_TEMPLATE_ID"] = c.TemplateID
	if temp != "/tmp" { // /tmp is the default of programs
		env["TMPDIR"] = temp
	}
	if proxied && c.Offline {
		env["PIP_RETRIES"], env["npm_config_fetch_retries"] = "0", "0"
	}
	if proxied && c.Proxy {
		proxy := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(guest.ProxyPort))
		// Some programs read only the upper-case name, and others only the lower-case name.
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
			env[name] = proxy
		}
		for _, name := range []string{"NO_PROXY", "no_proxy"} {
			env[name] = "localhost,127.0.0.1,::1"
		}
	}
	// Python packages and Node have their own certificates, without those that the owner of the
	// machine added.
	bundle := caBundle
	if c.Authority {
		bundle = guest.BundleFile
		env["PIP_CERT"] = bundle // pip ignores the other variables
	}
	if c.Authority || exists(caBundle) {
		for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
			env[name] = bundle
		}
	}
	return env
}

// defaults returns LANG and the environment variables in created. A client set these variables when
// it created the sandbox. created may override LANG.
func defaults(created map[string]string) map[string]string {
	env := map[string]string{"LANG": guest.Language}
	maps.Copy(env, created)
	return env
}

// mark writes files for programs in a sandbox. From these files, programs learn that they are in a
// sandbox, and the id of the sandbox. root is the sandbox's root directory. run is envd's directory
// for such files.
func mark(c *guest.Config, root, run string) error {
	if err := os.MkdirAll(run, 0o755); err != nil {
		return err
	}
	return errors.Join(
		unlessClosed(replace(filepath.Join(root, ".e2b"), "ENV_ID="+c.TemplateID+"\nTEMPLATE_ID="+c.TemplateID+"\n")),
		replace(filepath.Join(run, ".E2B_SANDBOX"), "true"),
		replace(filepath.Join(run, ".E2B_SANDBOX_ID"), c.SandboxID),
		replace(filepath.Join(run, ".E2B_TEMPLATE_ID"), c.TemplateID),
	)
}

// unlessClosed returns nil if err means that envd may not write a file of mark. This happens if a
// container runs as a user without this right, or if the root directory is read-only. Programs in
// such a container find the other files of mark. For other errors, unlessClosed returns err.
func unlessClosed(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return err
}

// markKernel writes the file with the id of the default kernel. Clients of the stateful template
// look for this file. This template was the interpreter's first template.
func markKernel(home, id string) error {
	dir := filepath.Join(home, ".jupyter")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return replace(filepath.Join(dir, "kernel_id"), id)
}

const caBundle = "/etc/ssl/certs/ca-certificates.crt"

// replace writes a regular file. It first removes any file at the path, because an image may have
// any kind of file at this path, and opening a pipe would block.
func replace(path, text string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
