package local

// DockerParams configures the daemon and the containers of [EngineDocker]. A zero field means
// its default.
type DockerParams struct {
	// Host is the address of the daemon, such as unix:///run/user/1000/podman/podman.sock. The default
	// is the address that the docker command uses: DOCKER_HOST, the current context, or the socket of
	// Docker Desktop, Docker or Podman.
	Host string
	// Image is the image for sandboxes of the templates base and code-interpreter-v1. The daemon pulls
	// the image if it is missing. Code in the sandbox needs the image's Python. The default is
	// python:3.12-slim.
	Image string

	// MemoryBytes (mem_limit in Docker's libraries) limits the memory of a container. Containers have
	// no swap. The default is the value of [WithResources].
	MemoryBytes int64
	// CPUs limits the processors that the container can use; 0.5 means half of one (cpu_quota 50000).
	// The default is the value of [WithResources].
	CPUs float64
	// MaxProcesses (pids_limit) limits the processes and threads. The default is the value of
	// [WithResources].
	MaxProcesses int
	// CapDrop (cap_drop) lists capabilities to remove from the container; "ALL" removes all. By
	// default the container has the daemon's usual capabilities.
	CapDrop []string
	// SecurityOpt (security_opt) lists further security options. no-new-privileges is always
	// set. Options that remove a protection, such as seccomp=unconfined, are refused.
	SecurityOpt []string
	// User is the user who runs all processes, such as "nobody". The default is the user of Image. In
	// sandboxes of other images, commands run as the user of the last USER instruction. Kernels run as
	// root if CapDrop removes no capability that root needs.
	User string
	// NetworkDisabled (network_disabled) also removes the proxy from sandboxes. The sandboxes then
	// reach no destination, even one that their rules allow.
	NetworkDisabled bool
}

// WithDocker configures [EngineDocker]. It does not select that engine. To select it, use
// [WithEngine] or a template of the engine, such as base-docker.
func WithDocker(p DockerParams) Option { return func(s *settings) { s.docker = p } }
