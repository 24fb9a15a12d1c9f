// Package engine says what an engine is: it isolates sandboxes and carries the
// connections to and from them. What one does not do it says in its [Promises].
package engine

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"time"
)

// Engine runs sandboxes. It is safe for concurrent use.
type Engine interface {
	// NewSandbox starts a sandbox and returns when it can be used. ctx bounds only
	// the start.
	NewSandbox(ctx context.Context, o SandboxOptions) (Sandbox, error)
	// Report describes what the machine provides.
	Report() Report
	// CheckLayers returns an error that matches [ErrNoLayers] if directories in dir cannot
	// be layers of sandboxes. It is asked once, before any layer is made.
	CheckLayers(ctx context.Context, dir string) error
	// Merge makes one layer of several, lowest first, in dir, an empty directory of the
	// same file system: what sandboxes see above it is what they saw above these.
	Merge(ctx context.Context, layers []string, dir string) error
	// UnpackTar makes a layer in dir, an empty directory, of a layer of a container image:
	// an uncompressed tar, of which everything is foreign. below are those that it stands
	// on, lowest first. After an error dir has no use. It reads tar to its end.
	UnpackTar(ctx context.Context, below []string, tar io.Reader, dir string) error
	// Done returns a channel that is closed when the engine has ended.
	Done() <-chan struct{}
	// Err returns why the engine ended by itself, an error that matches [ErrEnded]; nil
	// before its end.
	Err() error
	// Close ends all sandboxes and the engine.
	Close() error
}

// Sandbox is a running sandbox. It is safe for concurrent use.
type Sandbox interface {
	// Done returns a channel that is closed as soon as it is known that the sandbox has
	// ended, and why, or is about to. What it leaves may still be being removed.
	Done() <-chan struct{}
	// Err returns why it ended, and nil before its end. No other method says [ErrGone] before
	// Err says why.
	Err() error
	// Close ends it, and returns when nothing of it is left.
	Close() error
	// Dial connects to a port inside. Its errors include [ErrPortClosed], [ErrGone],
	// [ErrFrozen] and [ErrTooMany].
	Dial(ctx context.Context, port int) (net.Conn, error)
	// SetEgress changes the egress of a sandbox that was started with one.
	// Connections through the old one are cut off.
	SetEgress(e Egress)

	// Freeze stops every process in it until Thaw; their memory stays as it is. It cuts
	// what is connected through Dial and Egress. It is idempotent, and Close ends a
	// frozen sandbox as any other. If it fails, or ctx ends, nothing stays stopped.
	Freeze(ctx context.Context) error
	// Hold is Freeze for a moment: it cuts nothing, and what is connected waits. Of a
	// frozen sandbox it changes nothing.
	Hold(ctx context.Context) error
	// Thaw lets the processes of a frozen sandbox run again. It is idempotent.
	Thaw(ctx context.Context) error
	// Save copies the files that were written in a frozen sandbox, without those of its
	// layers, to dir, a directory of this user with mode 0700 that is empty but for the
	// directory of a SaveMemory, and syncs them to the disk. What it writes there is for [SandboxOptions].Files.
	Save(ctx context.Context, dir string) error
	// SaveLayer is Save, but makes a layer for [SandboxOptions].Layers in dir, an empty
	// directory of a file system for which CheckLayers returned nil. The layer can be used
	// when complete has returned, which syncs it: the sandbox need not be frozen for that.
	// After an error of either dir has no use, unless the error of SaveLayer matches
	// [ErrNoLayers]: then nothing was written, and Save has to do.
	SaveLayer(ctx context.Context, dir string) (complete func() error, err error)
	// SaveMemory writes the memory of a frozen sandbox, its processes and all that they
	// have open but connections from outside, to dir, an empty directory as that of Save,
	// and syncs it. Before, processes may run for a moment, after it none does until Thaw:
	// the files that belong to this memory are those that a Save after it saves. What it
	// writes is for [SandboxOptions].Memory. After an error the sandbox is frozen, or has
	// ended. Only an engine that promises [SavedMemory] does it; others return an error
	// that matches [errors.ErrUnsupported].
	SaveMemory(ctx context.Context, dir string) error
	// Memory returns the bytes of memory in use that cannot be reclaimed; 0 if that is
	// not known.
	Memory() int64
	// Usage returns what it uses now, and false if that cannot be found out, as after its
	// end.
	Usage() (Usage, bool)
}

// Usage is what a sandbox uses.
type Usage struct {
	CPU       time.Duration // processor time since its start
	Memory    uint64        // bytes that cannot be reclaimed
	Cache     uint64        // bytes of memory with copies of what is on disks
	Disk      uint64        // bytes of its file system that are in use
	DiskTotal uint64        // bytes of its file system
}

// SandboxOptions configure [Engine.NewSandbox].
type SandboxOptions struct {
	// ID is the sandbox's name and hostname: letters, digits and hyphens, at most
	// 63 characters.
	ID     string
	Limits Limits
	// Config is passed to envd unchanged; at most 1 MiB of JSON.
	Config json.RawMessage
	// Egress connects the sandbox to the outside; nil means that there is no egress
	// path, and that none can be set later.
	Egress Egress
	// Tell is called with what the daemon inside says, a line of JSON of at most some KiB,
	// from one goroutine; nil: it is not listened to. What it gets is the sandbox's word.
	Tell func(line []byte)
	// Layers are directories that SaveLayer, UnpackTar or Merge made, lowest first: the sandbox sees
	// their files below those that it writes. Any number of sandboxes share them. They are
	// only read, and must stay as they are until Close.
	Layers []string
	// Files is a directory that [Sandbox].Save filled: the sandbox begins with those
	// files. "": with none. It is only read, and only during the start. With Layers, the
	// saved sandbox must have had the same ones.
	Files string
	// Memory is a directory that [Sandbox].SaveMemory filled: the processes of that sandbox
	// go on in this one, whose Layers and Files must be what that one had, and whose other
	// options are what is true from now on. What was connected to it from outside is cut.
	// "": envd starts anew. It is only read, and only during the start. If this machine
	// cannot restore it the error matches [ErrOtherMachine].
	Memory string
	// Image says that the sandbox is made from a container image: it sees nothing of this
	// machine's programs. nil: it sees what the engine shows of its own.
	Image *Image
	// Authority is the certificate, as PEM, of an authority that programs in the sandbox
	// trust beside those of the machine. [Sandbox].Save does not save it. Where a sandbox
	// cannot be shown one the error matches [ErrNoAuthority].
	Authority []byte
	// Volumes are directories that the sandbox shares with others and with the host.
	// [Sandbox].Save does not save what is in them. Where a sandbox cannot have them the
	// error matches [ErrNoVolumes].
	Volumes []Volume
	// Mounts are directories of the host that the sandbox sees. [Sandbox].Save does not
	// save what is in them. Where a sandbox cannot have them the error matches
	// [ErrNoMounts].
	Mounts []Mount
}

// Image is the container image that a sandbox is made from. Its files are in
// [SandboxOptions].Layers, except for an engine that fetches images itself.
type Image struct {
	// Reference is the name that it was asked for, and Digest that of its manifest, for
	// messages and for an engine that fetches images itself.
	Reference, Digest string
}

// Mount is a directory of the host in a sandbox. What is in it belongs to the user of the
// sandbox if it belongs to whom the directory belongs to, and else to nobody.
type Mount struct {
	Dir      string // of the host, absolute
	Path     string // in the sandbox: absolute, and not the root
	Writable bool
	// File is the directory, which is shown also if Dir leads elsewhere by now, by an engine
	// that can. nil: the one that Dir leads to. The caller closes it after NewSandbox.
	File *os.File
}

// Volume is a directory of the host in a sandbox. Its files belong to the ids that
// sandboxes number from 0 on; where sandboxes have a single id, to that of the server. It
// must be where nobody else can reach it, and stay until Close.
type Volume struct {
	Dir  string // of the host, absolute
	Path string // in the sandbox: absolute, and not the root
	// Clone returns a mount of Dir that is attached nowhere, where only the caller can make
	// one. Such a volume is only for sandboxes that have many ids. nil: Dir is a directory
	// as any other.
	Clone func() (*os.File, error)
}
