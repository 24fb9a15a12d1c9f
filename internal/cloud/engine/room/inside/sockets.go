//go:build linux

package inside

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// sockets makes sockets for the server in the network namespace of a sandbox: one for IPv4, and, if
// the machine supports IPv6, one for IPv6. With these sockets, the server connects to a port of a
// program.
func (r *roomProcess) sockets(m wire.Message) error {
	p := r.process(m.ID)
	if p == nil {
		return nil
	}
	answer := wire.Message{Kind: wire.KindSockets, ID: m.ID}
	var made []*os.File
	err := inNamespace(p, unix.CLONE_NEWNET, "net", func() (err error) {
		made, err = newSockets()
		return err
	})
	if err != nil {
		answer.Error = "make a socket in its network: " + err.Error()
	}
	var files wire.Files
	files.AddList(wire.FileSocket, made)
	defer files.Close()
	return r.server.SendFiles(answer, &files)
}

func newSockets() (made []*os.File, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			made = append(made, os.NewFile(uintptr(fd), "socket"))
			continue
		}
		if family == unix.AF_INET || !errors.Is(err, unix.EAFNOSUPPORT) {
			wire.CloseAll(made)
			return nil, os.NewSyscallError("socket", err)
		}
	}
	return made, nil
}
