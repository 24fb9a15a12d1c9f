package guest

// MountedProgram is the path in a sandbox of the program that is its first process, started with
// ProgramArgument. No image has a file there: each sandbox gets a new /dev. Where a daemon cannot
// mount the program, it is copied to Program in the container. That is not /.e2b, which envd
// writes. With RemoveArgument it reads names of files, each ended by a zero byte, removes these
// files and exits.
const (
	Program         = "/.e2bctl"
	MountedProgram  = "/dev/.e2bctl"
	ProgramArgument = "contained"
	RemoveArgument  = "remove"
)
