package cloud

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listenerOn returns a description of the process that listens on the port of an address. It
// returns "" if it cannot find the process, for example because the process belongs to another
// user.
func listenerOn(address string) string {
	_, text, _ := net.SplitHostPort(address)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return ""
	}
	sockets := listening(uint16(port))
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*") // does not include processes of other users
	for _, name := range descriptors {
		socket, err := os.Readlink(name)
		if err != nil || !slices.Contains(sockets, socket) {
			continue
		}
		process := filepath.Dir(filepath.Dir(name))
		program, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil {
			continue
		}
		return fmt.Sprintf("process %s (%q)", filepath.Base(process), strings.TrimSpace(string(program)))
	}
	return ""
}

// listening returns the sockets that listen on a port, in the form "socket:[inode]".
func listening(port uint16) (sockets []string) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			const local, state, inode, listens = 1, 3, 9, "0A"
			fields := strings.Fields(line)
			if len(fields) > inode && fields[state] == listens && strings.HasSuffix(fields[local], fmt.Sprintf(":%04X", port)) {
				sockets = append(sockets, "socket:["+fields[inode]+"]")
			}
		}
	}
	return sockets
}
