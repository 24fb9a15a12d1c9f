//go:build linux

package hello

import (
	"os"
	"strconv"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// Argv0 is the name under which the binary is re-executed. SecondStage is the argument with which the
// first stage of an envd executes the second stage.
const (
	Argv0       = "e2bctl-cloud"
	SecondStage = "envd"
)

// Descriptors of a re-executed process: its control socket and the binary.
const (
	ControlFD = 3
	BinaryFD  = 4
)

// Version is the version of the protocol between the server and re-executed processes. It must be
// equal at both ends. Both ends run the same binary, unless Options.Binary names another binary.
const Version = 11

// Stage is the stage of this process.
type Stage int

// The stages. Without any, this process was not re-executed.
const (
	None       Stage = iota
	First            // the process takes any role except that of an envd
	Second           // the process becomes the envd of a sandbox
	Contained        // the process becomes the envd of a container, as its first process: see package tunnel
	Pod              // the process becomes the envd of a pod, as its first process; servers connect to it
	Removing         // the process removes files of a container, and ends
	Installing       // the process prepares a pod, and ends
)

var (
	stage Stage
	sent  error
)

// Said returns the stage of this process, and the error of sending hello.
func Said() (Stage, error) { return stage, sent }

func init() {
	if stage = stageOf(os.Args); stage == First || stage == Second {
		_, sent = syscall.Write(ControlFD, []byte(`{"kind":"hello","protocol":`+strconv.Itoa(Version)+`}`))
	}
}

// stageOf returns the stage of a process with these arguments. If args[0] is [Argv0], the
// descriptor of the control socket must be a SOCK_SEQPACKET Unix socket. If args[0] is the name of
// the program in a container, the process must be the first process of the container, except for
// Removing. In all other cases stageOf returns None.
func stageOf(args []string) Stage {
	switch {
	case len(args) == 2 && isProgram(args[0]) && args[1] == guest.ProgramArgument && os.Getpid() == 1:
		return Contained
	case len(args) == 4 && isProgram(args[0]) && args[1] == guest.PodArgument && os.Getpid() == 1:
		return Pod
	case len(args) == 2 && isProgram(args[0]) && args[1] == guest.RemoveArgument:
		return Removing
	case len(args) >= 3 && isProgram(args[0]) && args[1] == guest.InstallArgument && os.Getpid() == 1:
		return Installing
	case len(args) == 0 || args[0] != Argv0 || !isControl(ControlFD):
		return None
	case len(args) > 1 && args[1] == SecondStage:
		return Second
	}
	return First
}

// isProgram reports whether name is the name of this program in a container.
func isProgram(name string) bool { return name == guest.Program || name == guest.MountedProgram }

func isControl(fd int) bool {
	typ, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	if err != nil || typ != syscall.SOCK_SEQPACKET {
		return false
	}
	domain, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_DOMAIN)
	return err == nil && domain == syscall.AF_UNIX
}
