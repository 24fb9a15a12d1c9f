//go:build linux

package wire

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// FileName is the name of a file in a message. A list of files has the name of the list and a
// number: see [Files.AddList].
type FileName string

const (
	FileLock      FileName = "lock"       // lock that the keeper holds
	FileRoom      FileName = "room"       // control socket of the room that a guard starts
	FileControl   FileName = "control"    // control socket of a process that the room starts
	FileGroup     FileName = "group"      // list: control groups to join
	FilePidfd     FileName = "pidfd"      // first process of a sandbox
	FileTree      FileName = "tree"       // list: mounts of the trees of an InitSpec
	FileLayer     FileName = "layer"      // list: mounts of layers
	FileVolume    FileName = "volume"     // list: mounts or directories of volumes
	FileDevices   FileName = "devices"    // mount with the sandbox's own devices
	FilePrivate   FileName = "private"    // list of the files to hide, as text
	FileSaved     FileName = "saved"      // saved files to begin with
	FileProgram   FileName = "program"    // mount of the program for gVisor's sandbox
	FileMounter   FileName = "mounter"    // control socket of the mounter
	FileFiles     FileName = "files"      // file system to which the sandbox writes
	FileMeminfo   FileName = "meminfo"    // text of the sandbox's /proc/meminfo, open for writing
	FileProc      FileName = "proc"       // the sandbox's /proc
	FileMemoryUse FileName = "memory use" // memory.stat of the sandbox's control group
	FileOOMKills  FileName = "oom kills"  // count of processes that the group killed for lack of memory
	FileEgress    FileName = "egress"     // list: TCP listener and UDP socket of the egress path
	FileConfig    FileName = "config"     // configuration of envd
	FileRunsc     FileName = "runsc"      // program of gVisor
	FileMemory    FileName = "memory"     // directory of saved memory
	FileTo        FileName = "to"         // file or pipe to write saved files to
	FileDirectory FileName = "directory"  // mount of the directory to make layers in
	FileTar       FileName = "tar"        // layer of a container image
	FileStream    FileName = "stream"     // one end of a connection
	FileSocket    FileName = "socket"     // list: sockets for the loopback of a sandbox: IPv4 and maybe IPv6
	FileKernel    FileName = "kernel"     // socket of a kernel
	FileTerminal  FileName = "terminal"   // controlling end of a terminal
	FileTTY       FileName = "tty"        // other end of a terminal
	FileJoined    FileName = "joined"     // pipe that a kernel writes to when it has joined its groups
)

// Numbered returns the name of a file of a list.
func (n FileName) Numbered(i int) FileName { return n + FileName(" "+strconv.Itoa(i)) }

// Files are the open files of a message, by name. The zero value has no files, and a nil *Files can
// be sent. A file belongs to Files from Add to Take: Close closes the files that were added and not
// taken. Files is not safe for concurrent use.
type Files struct {
	names []FileName
	files []*os.File
	lent  map[FileName]bool // files that belong to the caller of Lend; nil if there are none
}

// Lent returns files with one file that still belongs to the caller.
func Lent(name FileName, file *os.File) *Files {
	var f Files
	f.Lend(name, file)
	return &f
}

// Add adds a file, which belongs to f from now on.
func (f *Files) Add(name FileName, file *os.File) {
	f.names, f.files = append(f.names, name), append(f.files, file)
}

// AddList adds the files of a list.
func (f *Files) AddList(name FileName, files []*os.File) {
	for i, file := range files {
		f.Add(name.Numbered(i), file)
	}
}

// Lend adds a file that still belongs to the caller.
func (f *Files) Lend(name FileName, file *os.File) {
	f.Add(name, file)
	if f.lent == nil {
		f.lent = make(map[FileName]bool)
	}
	f.lent[name] = true
}

// Len returns the number of files.
func (f *Files) Len() int {
	if f == nil {
		return 0
	}
	return len(f.files)
}

// Take returns the file with a name. The file belongs to the caller from now on. If there is no
// such file, the error matches [ErrProtocol].
func (f *Files) Take(name FileName) (*os.File, error) {
	if file := f.TakeIf(name); file != nil {
		return file, nil
	}
	return nil, fmt.Errorf("%w: the file %q is missing", ErrProtocol, name)
}

// TakeIf works like Take, but returns nil if there is no such file.
func (f *Files) TakeIf(name FileName) *os.File {
	for i, have := range f.names {
		if have == name {
			file := f.files[i]
			f.names, f.files = append(f.names[:i:i], f.names[i+1:]...), append(f.files[:i:i], f.files[i+1:]...)
			return file
		}
	}
	return nil
}

// TakeWhen works like Take if the file was announced, and returns nil otherwise.
func (f *Files) TakeWhen(announced bool, name FileName) (*os.File, error) {
	if !announced {
		return nil, nil
	}
	return f.Take(name)
}

// TakeAt is like Take, for the file with the number i of a list.
func (f *Files) TakeAt(name FileName, i int) (*os.File, error) { return f.Take(name.Numbered(i)) }

// TakeList returns the files of a list, in order. If there is no such list, it returns no files.
func (f *Files) TakeList(name FileName) (list []*os.File) {
	for {
		file := f.TakeIf(name.Numbered(len(list)))
		if file == nil {
			return list
		}
		list = append(list, file)
	}
}

// End closes the files that were not taken. If there are such files, it returns an error that names
// them and matches [ErrProtocol].
func (f *Files) End() error {
	if f.Len() == 0 {
		return nil
	}
	left := make([]string, len(f.names))
	for i, name := range f.names {
		left[i] = strconv.Quote(string(name))
	}
	f.Close()
	return fmt.Errorf("%w: nobody wants the files %s", ErrProtocol, strings.Join(left, ", "))
}

// Close closes the files that belong to f. It is idempotent.
func (f *Files) Close() {
	if f == nil {
		return
	}
	for i, file := range f.files {
		if !f.lent[f.names[i]] {
			file.Close()
		}
	}
	*f = Files{}
}
