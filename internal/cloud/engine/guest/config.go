package guest

// Config is the configuration that the server passes to a starting envd.
type Config struct {
	SandboxID  string `json:"sandboxId"`
	TemplateID string `json:"templateId"`
	// User is the default user of processes; "" means the account "user".
	User string `json:"user,omitempty"`
	// Workdir is the default working directory of processes. "" means the home directory of the user
	// who runs the process. UserWorkdir means the home directory of the account "user".
	Workdir     string            `json:"workdir,omitempty"`
	AccessToken string            `json:"accessToken,omitempty"` // "" for a sandbox that is not secured
	Envs        map[string]string `json:"envs,omitempty"`        // create-time environment
	System      map[string]string `json:"system,omitempty"`      // environment that Envs cannot override
	// Image is the container image that the sandbox's root directory comes from; "" means none.
	Image     string `json:"image,omitempty"`
	Contained bool   `json:"contained,omitempty"` // envd is the first process of a container
	// Python is the command that runs the kernels. Its program is a path, or a name that is found in
	// PATH. If Python is empty, kernels cannot start.
	Python      []string `json:"python,omitempty"`
	Path        string   `json:"path"` // PATH of every process
	MemoryBytes uint64   `json:"memoryBytes,omitempty"`
	CPUs        int      `json:"cpus,omitempty"`
	Proxy       bool     `json:"proxy,omitempty"`     // programs get the proxy's environment variables
	Authority   bool     `json:"authority,omitempty"` // AuthorityDir has a certificate
	// CloudPort is the port to which programs connect to reach other sandboxes by their names. The
	// connections are relayed to the server. 0 means that there is no such port.
	CloudPort int `json:"cloudPort,omitempty"`
	// Wasm configures Python in WebAssembly; nil means that commands and kernels are processes.
	Wasm *Wasm `json:"wasm,omitempty"`
	// Offline means that everything that is not explicitly allowed is denied, so retrying is
	// useless.
	Offline bool `json:"offline,omitempty"`
}

// Home directories and the shell of sandboxes with a range of ids, and the shell of images that
// lack bash.
const (
	RootHome   = "/root"
	UserHome   = "/home/user"
	LoginShell = "/bin/bash"
	PlainShell = "/bin/sh"
)

// UserWorkdir is a working directory that means the home directory of the account "user", wherever
// that is. It can also be the working directory of processes of other users.
const UserWorkdir = "~user"

// MaxConfig bounds the length of an encoded Config, in bytes.
const MaxConfig = 1 << 20

// ProxyPort is the port on which the proxy listens inside a sandbox with a network
// of its own.
const ProxyPort = 3128

// Language is the default LANG of every process. It makes text UTF-8. All other settings are the
// same as without a locale.
const Language = "C.UTF-8"

// KernelEnviron returns the environment of the process from which kernels are forked.
func (c *Config) KernelEnviron() []string {
	env := make([]string, 0, len(c.System)+1)
	env = append(env, "LANG="+Language)
	for name, value := range c.System {
		env = append(env, name+"="+value)
	}
	return env
}
