package guest

// Program is where a container has the program that is its first process, and
// ProgramArgument what it is started with. It is not /.e2b, which envd writes.
const (
	Program         = "/.e2bctl"
	ProgramArgument = "contained"
)
