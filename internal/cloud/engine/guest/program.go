package guest

// Program is where a container has the program that is its first process, and
// ProgramArgument what it is started with. It is not /.e2b, which envd writes. With
// RemoveArgument it removes the files whose names it reads, each ended by a zero byte, and ends.
const (
	Program         = "/.e2bctl"
	ProgramArgument = "contained"
	RemoveArgument  = "remove"
)
