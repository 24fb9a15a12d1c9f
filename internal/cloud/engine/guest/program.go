package guest

// Program is where a container has the program that is its first process, and
// ProgramArgument what it is started with. It is not /.e2b, which envd writes. With
// RemoveArgument it removes the files whose names it reads, each ended by a zero byte, and ends.
// GVisorProgram is where gVisor shows it, which makes the files in /dev itself.
const (
	Program         = "/.e2bctl"
	GVisorProgram   = "/dev/.e2bctl"
	ProgramArgument = "contained"
	RemoveArgument  = "remove"
)
