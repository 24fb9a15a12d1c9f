package guest

// MountedProgram is where a sandbox has the program that is its first process, and
// ProgramArgument what it is started with. No image has anything there: /dev is made anew for
// each sandbox. Program is where it is copied to in a container whose daemon cannot mount it. It
// is not /.e2b, which envd writes. With RemoveArgument it removes the files whose names it reads,
// each ended by a zero byte, and ends.
const (
	Program         = "/.e2bctl"
	MountedProgram  = "/dev/.e2bctl"
	ProgramArgument = "contained"
	RemoveArgument  = "remove"
)
