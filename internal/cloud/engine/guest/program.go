package guest

// MountedProgram is the path, inside a sandbox, of the program that runs as the sandbox's first
// process. The program is started with ProgramArgument. No image has a file at this path, because
// each sandbox gets a new /dev. If a daemon cannot mount the program, the program is copied to the
// path Program in the container. This path is not /.e2b, because envd writes to /.e2b. With
// RemoveArgument, the program reads names of files, each ended by a zero byte, removes these files
// and exits.
//
// With PodArgument, the program is the first process of a pod. It listens on a port of the loopback
// interface, and servers must authenticate to it. Its other arguments are the port and the public
// key of the servers in base64. The proof of a server includes the pod's UID, which the program
// reads from the variable PodUIDVariable. With InstallArgument, the program copies itself to the
// path in the next argument, denies the pod the networks in the other arguments, and exits.
const (
	Program         = "/.e2bctl"
	MountedProgram  = "/dev/.e2bctl"
	ProgramArgument = "contained"
	RemoveArgument  = "remove"
	PodArgument     = "pod"
	InstallArgument = "install"
	PodUIDVariable  = "E2BCTL_POD_UID"
)
