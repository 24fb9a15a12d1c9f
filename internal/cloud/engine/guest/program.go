package guest

// MountedProgram is the path in a sandbox of the program that is its first process, started with
// ProgramArgument. No image has a file there: each sandbox gets a new /dev. Where a daemon cannot
// mount the program, it is copied to Program in the container. That is not /.e2b, which envd
// writes. With RemoveArgument it reads names of files, each ended by a zero byte, removes these
// files and exits.
//
// With PodArgument it is the first process of a pod: it listens on a port of the loopback interface
// and lets servers prove themselves. The port, and the public key of the servers in base64, are its
// other arguments; the pod's UID, which is part of the proof, is in the variable PodUIDVariable.
// With InstallArgument it copies itself to the path that follows, denies the pod the networks that
// are its other arguments, and exits.
const (
	Program         = "/.e2bctl"
	MountedProgram  = "/dev/.e2bctl"
	ProgramArgument = "contained"
	RemoveArgument  = "remove"
	PodArgument     = "pod"
	InstallArgument = "install"
	PodUIDVariable  = "E2BCTL_POD_UID"
)
