//go:build linux

package inside

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// showMemory makes the file that replaces the machine's /proc/meminfo inside. The /proc of the
// sandbox's root is already mounted. showMemory returns the file and this /proc.
func showMemory(total uint64) (text, proc *os.File, err error) {
	const name = "meminfo"
	if proc, err = os.Open("root/proc"); err != nil {
		return nil, nil, err
	}
	// Only this descriptor can write to the file: inside, its mount is read-only.
	text, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o444)
	if err == nil {
		_, err = text.Write(memoryText(total, cgroup.Memory{}))
	}
	if err == nil {
		err = showInProc(name)
	}
	if err != nil {
		proc.Close()
		if text != nil {
			text.Close()
		}
		return nil, nil, err
	}
	return text, proc, nil
}

// showInProc mounts a file of the staging directory over the file at path in the root's /proc. Nobody
// inside can change the mounted file. Its name in the staging directory is the last element of path.
func showInProc(path string) error {
	name := filepath.Base(path)
	path = filepath.Join("root/proc", path)
	if err := unix.Mount(name, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show /proc/%s: %w", name, err)
	}
	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_set: attributes}); err != nil {
		return fmt.Errorf("make /proc/%s read-only: %w", name, err)
	}
	return nil
}

// meminfo keeps one sandbox's /proc/meminfo up to date.
type meminfo struct {
	file, proc *os.File // the file with the text, and the sandbox's /proc
	group      *os.File // the group's memory.stat; nil without a group
	opened     chan struct{}
	end        chan struct{}
	leased     bool // this process holds a lease of the file; guarded by meminfos.mu

	mu      sync.Mutex // held while the text is written
	total   uint64     // the sandbox's limit in bytes
	written int        // length of the text that was written last; 0 before the first
}

// newMeminfo takes the files of a MeminfoSpec.
func newMeminfo(total uint64, files *wire.Files) (*meminfo, error) {
	m := &meminfo{total: total, opened: make(chan struct{}, 1), end: make(chan struct{})}
	var err error
	if m.file, err = files.Take(wire.FileMeminfo); err != nil {
		return nil, err
	}
	if m.proc, err = files.Take(wire.FileProc); err != nil {
		m.file.Close()
		return nil, err
	}
	m.group = files.TakeIf(wire.FileMemoryUse)
	return m, nil
}

// resize changes the limit in the text.
func (m *meminfo) resize(total uint64) {
	m.mu.Lock()
	m.total = total
	m.mu.Unlock()
	m.write()
}

func (m *meminfo) write() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var use cgroup.Memory
	known := false
	if m.group != nil {
		use, known = cgroup.ReadMemory(m.group)
	}
	if !known {
		use = m.addUp()
	}
	text := memoryText(m.total, use)
	if _, err := m.file.WriteAt(text, 0); err != nil {
		return // if memory has run out, the old text stays
	}
	if len(text) < m.written { // the total was changed
		_ = m.file.Truncate(int64(len(text))) // never fails for a shorter file
	}
	m.written = len(text)
}

// addUp adds up the memory of the sandbox's processes and files. It is used if no control group
// counts the memory of the sandbox. It does not count memory that processes share.
func (m *meminfo) addUp() (use cgroup.Memory) {
	processes := fmt.Sprintf("/proc/self/fd/%d", m.proc.Fd())
	names, _ := filepath.Glob(processes + "/[0-9]*/statm") // the pattern is well-formed
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
	if err := unix.Fstatfs(int(m.file.Fd()), &disk); err == nil { // the sandbox writes only there
		use.Kept = (disk.Blocks - disk.Bfree) * uint64(disk.Bsize)
	}
	return use
}

// memoryText returns the text of a /proc/meminfo. The length of the text depends only on total, so
// that a new text completely overwrites the previous text.
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
