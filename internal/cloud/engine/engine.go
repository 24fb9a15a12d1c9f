// Package engine defines the interface of an engine, which isolates sandboxes and carries the
// connections to and from them. An engine lists its shortcomings in its [Promises].
//
// The engines are the packages below it: room isolates with namespaces, docker with
// containers, kubernetes with pods, and gvisor and wasm run a kernel in user space and WebAssembly
// in a room.
// link has the code that they share for connections and the freeze, and tunnel carries
// the connections of a container over one stream. guest describes a sandbox
// for both the server and the sandbox itself. kubelink has the options of kubernetes, which is a
// module of its own, and the link to it. For tests, enginetest decides whether those
// of an engine run, refusetest makes the kernel refuse calls, and kubetest
// gives them a Kubernetes cluster.
package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// Engine runs sandboxes. It is safe for concurrent use.
type Engine interface {
	// NewSandbox starts a sandbox and returns when it can be used. ctx bounds only
	// the start.
	NewSandbox(ctx context.Context, o SandboxOptions) (Sandbox, error)
	// Report describes what the machine provides.
	Report() Report
	// CheckLayers returns an error that is the [LackError] of SharedLayers if directories in dir cannot
	// be layers of sandboxes. It is asked once, before any layer is made.
	CheckLayers(ctx context.Context, dir string) error
	// Merge merges layers, lowest first, into one layer in dir, an empty directory of the same file
	// system. A sandbox sees the same files above the merged layer as above the originals.
	Merge(ctx context.Context, layers []string, dir string) error
	// UnpackTar makes a layer in dir, an empty directory, from a layer of a container image: an
	// uncompressed tar, which is not trusted. below are the layers underneath, lowest first. It
	// reads tar to its end. After an error the content of dir is useless.
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
	// Done returns a channel that is closed when the sandbox has ended, or is about to, and Err gives the
	// reason. The removal of its remains may not be complete.
	Done() <-chan struct{}
	// Err returns why the sandbox ended, and nil before its end. No other method returns [ErrGone]
	// while Err returns nil.
	Err() error
	// Close ends the sandbox, and returns when nothing is left of it.
	Close() error
	// Dial connects to a port inside. Its errors include [ErrPortClosed], [ErrGone],
	// [ErrFrozen] and [ErrTooMany].
	Dial(ctx context.Context, port int) (net.Conn, error)
	// SetEgress changes the egress of a sandbox that was started with one. It cuts connections
	// through the old one.
	SetEgress(e Egress)

	// Freeze stops every process of the sandbox until Thaw; memory stays as it is. It cuts
	// connections made through Dial and Egress. It is idempotent, and Close ends a frozen sandbox
	// like any other. If it fails, or ctx ends, every process runs on.
	Freeze(ctx context.Context) error
	// Hold is a brief Freeze that keeps connections: they wait. It does not change a frozen
	// sandbox.
	Hold(ctx context.Context) error
	// Thaw lets the processes of a frozen sandbox run again. It is idempotent.
	Thaw(ctx context.Context) error
	// Save copies the files written in a frozen sandbox, without its layers, to dir and syncs them
	// to disk. The directory belongs to this user, has mode 0700, and is empty except for the
	// directory of a SaveMemory. It is for [SandboxOptions].Files.
	Save(ctx context.Context, dir string) error
	// SaveLayer saves the same files as Save, but as a layer for [SandboxOptions].Layers in dir, an empty
	// directory of a file system for which CheckLayers returned nil. The returned function complete syncs the
	// layer, and only then it can be used. The sandbox may be thawed before. After an error of SaveLayer or of
	// complete, the content of dir is useless. If the error of SaveLayer matches the [LackError] of
	// SharedLayers, nothing was written and the caller uses Save instead.
	SaveLayer(ctx context.Context, dir string) (complete func() error, err error)
	// SaveMemory writes the memory of a frozen sandbox to dir, an empty directory like that of Save, and syncs
	// it. The memory is that of its processes and everything that they have open, except connections from
	// outside. Processes may run for a moment before their memory is written, but not between that and Thaw. So
	// only a Save after SaveMemory saves the files that match the memory. The directory is for
	// [SandboxOptions].Memory. After an error the sandbox is frozen, or has ended. Only an engine that promises
	// [SavedMemory] supports it; others return an error that matches [errors.ErrUnsupported].
	SaveMemory(ctx context.Context, dir string) error
	// Memory returns the bytes of memory in use that cannot be reclaimed; 0 means unknown.
	Memory() int64
	// Usage returns the current usage, and false if it is unknown, for example after the sandbox's
	// end.
	Usage() (Usage, bool)
}

// Usage is the resource usage of a sandbox.
type Usage struct {
	CPU       time.Duration // processor time since the start of the sandbox
	Memory    uint64        // bytes of memory that cannot be reclaimed
	Cache     uint64        // bytes of page cache, which can be reclaimed
	Disk      uint64        // bytes in use of the sandbox's file system
	DiskTotal uint64        // size in bytes of the sandbox's file system
}

// SandboxOptions configure [Engine.NewSandbox].
type SandboxOptions struct {
	// ID is the sandbox's name and hostname: letters, digits and hyphens, at most
	// 63 characters.
	ID     string
	Limits Limits
	// Config is for envd. An engine may change values that are different in its sandboxes, such as
	// limits and the user. If the text is over [guest.MaxConfig] the error matches [ErrTooLarge].
	Config guest.Config
	// Egress connects the sandbox to the outside. If it is nil there is no egress, and none can be
	// set later.
	Egress Egress
	// Tell is called with each report of the daemon in the sandbox. A report is one line of JSON of a few KiB at
	// most, and is not trusted. Only one goroutine calls Tell. A nil Tell discards reports.
	Tell func(line []byte)
	// Layers are directories made by SaveLayer, UnpackTar or Merge, lowest first: the sandbox sees
	// their files below those that it writes. Any number of sandboxes share them. They are only
	// read, and must not change until Close.
	Layers []string
	// Files is a directory filled by [Sandbox].Save: the sandbox starts with those files. Empty
	// means no files. It is only read, and only during the start. With Layers, the saved sandbox
	// must have had the same ones.
	Files string
	// Memory is a directory filled by [Sandbox].SaveMemory: the processes of the saved sandbox
	// continue in this one. Layers and Files must equal those of the saved sandbox; all other
	// options take effect now. Connections from outside are cut. Empty means that envd starts anew.
	// It is only read, and only during the start. If this machine cannot restore it the error
	// matches [ErrOtherMachine].
	Memory string
	// Image makes the sandbox from a container image, without any programs of this machine. If it
	// is nil the engine shows its own choice of programs.
	Image *Image
	// Authority is the PEM certificate of an authority that programs in the sandbox trust in addition to the
	// machine's. [Sandbox].Save does not save it. If the sandbox cannot have one, the error is the [LackError]
	// of HeaderRules.
	Authority []byte
	// Volumes are directories that the sandbox shares with others and with the host. [Sandbox].Save
	// does not save their content. Where volumes are impossible the error is the
	// [LackError] of Volumes.
	Volumes []Volume
	// Mounts are directories of the host that the sandbox sees. [Sandbox].Save does not save their
	// content. Where mounts are impossible the error is the [LackError] of Mounts.
	Mounts []Mount
}

// EncodeConfig returns the text of Config, which envd decodes. Errors include [ErrTooLarge].
func (o *SandboxOptions) EncodeConfig() ([]byte, error) {
	text, err := json.Marshal(o.Config)
	if err == nil && len(text) > guest.MaxConfig {
		err = fmt.Errorf("%w: it has %d bytes, and %d is the limit", ErrTooLarge, len(text), guest.MaxConfig)
	}
	return text, err
}

// Image is the container image that a sandbox is made from. Its files are in
// [SandboxOptions].Layers, except for an engine that fetches images itself.
type Image struct {
	// Reference is the requested name, and Digest that of the manifest. They are for messages and
	// for an engine that fetches images itself.
	Reference, Digest string
}

// Mount is a directory of the host in a sandbox. Files of the directory's owner belong to the user
// of the sandbox; all others belong to nobody.
type Mount struct {
	Dir      string // absolute path of the directory on the host
	Path     string // absolute path in the sandbox; not the root
	Writable bool
	// File is the opened directory. An engine that can shows it even if Dir leads elsewhere by now.
	// If it is nil the engine opens Dir. The caller closes it after NewSandbox.
	File *os.File
}

// Volume is a directory of the host in a sandbox. Its files belong to the ids of the sandbox,
// numbered from 0; where sandboxes have a single id, to the server's id. Nobody else may have
// access to the directory, and it must stay until Close.
type Volume struct {
	Dir  string // absolute path of the directory on the host
	Path string // absolute path in the sandbox; not the root
	// Clone returns a detached mount of Dir, where only the caller can make one. Such a volume is
	// only for sandboxes that have many ids. If it is nil Dir is an ordinary directory.
	Clone func() (*os.File, error)
}
