package local

// DockerParams configures the daemon and the containers of [EngineDocker]. Zero values are the
// defaults.
type DockerParams struct {
	// Host is the address of the daemon, as unix:///run/user/1000/podman/podman.sock. The default
	// is that of the docker command: DOCKER_HOST, the current context, or the socket of Docker
	// Desktop, Docker or Podman.
	Host string
	// Image is the image of sandboxes of base and code-interpreter-v1. The daemon pulls it if it
	// does not have it. Code needs its Python; the default is python:3.12-slim.
	Image string

	// MemoryBytes (mem_limit of Docker's libraries) bounds the memory, and there is no swap.
	// The default is that of [WithResources], as for the next two.
	MemoryBytes int64
	// CPUs limits the processors that the container keeps busy, 0.5 for half of one
	// (cpu_quota 50000).
	CPUs float64
	// MaxProcesses (pids_limit) bounds the processes and threads.
	MaxProcesses int
	// CapDrop (cap_drop) are capabilities that the container does not have, "ALL" for all. The
	// default is none beyond what the daemon withholds.
	CapDrop []string
	// SecurityOpt (security_opt) are more of these options. no-new-privileges always holds. An
	// option that takes a protection away, such as seccomp=unconfined, is refused.
	SecurityOpt []string
	// User is the user that all processes run as, such as "nobody". By default they run as the
	// user of Image. In sandboxes of other images commands run as the last USER, and kernels as
	// root unless CapDrop removes a capability that root needs.
	User string
	// NetworkDisabled (network_disabled) also removes the proxy from sandboxes: they reach
	// nothing, even if their rules allow it.
	NetworkDisabled bool
}

// WithDocker configures [EngineDocker]. It does not choose it: [WithEngine] does, or a
// template of that engine, such as base-docker.
func WithDocker(p DockerParams) Option { return func(s *settings) { s.docker = p } }
