//go:build linux

package inside

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
)

// showMemory makes the file that is /proc/meminfo inside, in place of the
// machine's. The root's /proc is mounted already.
func showMemory(total uint64) (*os.File, error) {
	const name = "meminfo"
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o444)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(memoryText(total, cgroup.Memory{})); err != nil {
		return nil, err
	}
	return f, showInProc(name)
}

// showInProc mounts a file of the staging directory over the one of that name in
// the root's /proc, so that nobody inside can change it.
func showInProc(name string) error {
	path := filepath.Join("root/proc", name)
	if err := unix.Mount(name, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show /proc/%s: %w", name, err)
	}
	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_set: attributes}); err != nil {
		return fmt.Errorf("make /proc/%s read-only: %w", name, err)
	}
	return nil
}

// meminfo keeps the sandbox's /proc/meminfo up to date.
type meminfo struct {
	file  *os.File
	total uint64   // the sandbox's limit in bytes
	group *os.File // what the group's memory is used for; nil without a group
}

// meminfoPause is how long the text stays as it is after it was written.
const meminfoPause = time.Second

// keep writes the text when somebody opens the file, and costs nothing as long as
// nobody does: the kernel lets an open wait, and sends a signal, while another
// process has a lease of the file. As long as somebody has the file open, and on a
// machine whose administrator has turned leases off, there is no lease, and the text
// is written after every pause.
func (m *meminfo) keep(ctx context.Context) {
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, unix.SIGIO)
	defer signal.Stop(opened)
	// Otherwise the kernel would address the signal to the thread that asks for the
	// lease, as if it were a process. For itself, a process may always ask.
	_, _ = unix.FcntlInt(m.file.Fd(), unix.F_SETOWN, os.Getpid())
	for {
		if m.lease(unix.F_WRLCK) == nil {
			select {
			case <-opened:
			case <-ctx.Done():
				return
			}
		}
		m.write()
		_ = m.lease(unix.F_UNLCK) // there may be none
		select {
		case <-time.After(meminfoPause):
		case <-ctx.Done():
			return
		}
	}
}

func (m *meminfo) lease(kind int) error {
	_, err := unix.FcntlInt(m.file.Fd(), unix.F_SETLEASE, kind)
	return err
}

func (m *meminfo) write() {
	var use cgroup.Memory
	known := false
	if m.group != nil {
		use, known = cgroup.ReadMemory(m.group)
	}
	if !known {
		use = addUp()
	}
	_, _ = m.file.WriteAt(memoryText(m.total, use), 0) // if memory has run out, the text stays as it is
}

// addUp returns what the processes and files of the sandbox use, where no group
// counts it. Memory that processes share is not counted.
func addUp() (use cgroup.Memory) {
	names, _ := filepath.Glob("/proc/[0-9]*/statm") // the pattern is well-formed
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended
		}
		if fields := strings.Fields(string(text)); len(fields) > 2 {
			resident, _ := strconv.ParseUint(fields[1], 10, 64) // the kernel's own numbers
			shared, _ := strconv.ParseUint(fields[2], 10, 64)
			use.Anonymous += (resident - min(resident, shared)) * uint64(os.Getpagesize())
		}
	}
	var disk unix.Statfs_t
	if err := unix.Statfs("/", &disk); err == nil {
		use.Kept = (disk.Blocks - disk.Bfree) * uint64(disk.Bsize)
	}
	return use
}

// memoryText returns the text of a /proc/meminfo. Its length depends only on total,
// so that a text may be written over another.
func memoryText(total uint64, use cgroup.Memory) []byte {
	used := min(total, use.Used())
	cache := min(total-used, use.Cache)
	free := total - used - cache
	width := max(8, len(strconv.FormatUint(total>>10, 10)))
	var text bytes.Buffer
	for _, line := range []struct {
		name  string
		bytes uint64
	}{
		{"MemTotal", total}, {"MemFree", free}, {"MemAvailable", free + cache},
		{"Buffers", 0}, {"Cached", cache + min(used, use.Kept)}, {"SwapCached", 0},
		{"Active", used}, {"Inactive", cache}, // some programs complain if these are missing
		{"SwapTotal", 0}, {"SwapFree", 0}, {"Dirty", 0}, {"Writeback", 0},
		{"AnonPages", min(used, use.Anonymous)}, {"Mapped", 0}, {"Shmem", min(used, use.Kept)},
		{"KReclaimable", 0}, {"Slab", 0}, {"SReclaimable", 0}, {"SUnreclaim", 0},
	} {
		fmt.Fprintf(&text, "%-16s%*d kB\n", line.name+":", width, line.bytes>>10)
	}
	return text.Bytes()
}
