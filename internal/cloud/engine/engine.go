// Package engine defines the interface of an engine. An engine isolates sandboxes, and forwards the
// connections to and from them. An engine lists its shortcomings in its [Promises].
//
// The engines are subpackages: room isolates with namespaces, docker with containers, and
// kubernetes with pods. gvisor runs a kernel in user space in a room, and wasm runs WebAssembly in a
// room.
// The engines share the code in link for connections and the freeze. tunnel forwards the
// connections of a container over one stream. guest describes a sandbox for both the server and the
// sandbox itself. Three packages are for tests: enginetest decides whether the tests of an engine
// run, refusetest makes the kernel refuse calls, and kubetest provides a Kubernetes cluster. The
// engine kubernetes is a module of its own. kubelink has the options of this engine, and the link to
// it.
package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	// CheckLayers returns the [LackError] of SharedLayers if directories in dir cannot be layers of
	// sandboxes. It is called once, before any layer is made.
	CheckLayers(ctx context.Context, dir string) error
	// Merge merges layers into one layer in dir, an empty directory of the same file system. The
	// lowest layer is the first. A sandbox above the merged layer sees the same files as a sandbox
	// above the original layers.
	Merge(ctx context.Context, layers []string, dir string) error
	// UnpackTar makes a layer in dir, an empty directory, from a layer of a container image. tar is
	// the layer of the image as an uncompressed tar archive, which is not trusted. below are the
	// layers underneath, lowest first. UnpackTar reads tar to its end. After an error, the content
	// of dir is useless.
	UnpackTar(ctx context.Context, below []string, tar io.Reader, dir string) error
	// Done returns a channel that is closed when the engine has ended.
	Done() <-chan struct{}
	// Err returns an error with the reason why the engine ended by itself. The error matches
	// [ErrEnded]. Before the engine's end, Err returns nil.
	Err() error
	// Close ends all sandboxes and the engine.
	Close() error
}

// Sandbox is a running sandbox. It is safe for concurrent use.
type Sandbox interface {
	// Done returns a channel that is closed when the sandbox has ended or is about to end. Err then
	// returns the reason. The removal of the sandbox's remains may still be in progress.
	Done() <-chan struct{}
	// Err returns why the sandbox ended, and nil before its end. No other method returns [ErrGone]
	// while Err returns nil.
	Err() error
	// Close ends the sandbox, and returns when nothing is left of it.
	Close() error
	// Dial connects to a port in the sandbox. Its errors include [ErrPortClosed], [ErrGone],
	// [ErrFrozen] and [ErrTooMany].
	Dial(ctx context.Context, port int) (net.Conn, error)
	// SetEgress changes the egress of a sandbox that was started with an egress. It cuts connections
	// that were made through the old egress.
	SetEgress(e Egress)

	// Freeze stops every process of the sandbox until Thaw; memory does not change. It cuts
	// connections made through Dial and Egress. It is idempotent. Close can also end a frozen
	// sandbox. If Freeze fails, or ctx ends, all processes continue to run. Freeze of a [Suspender] is
	// different.
	Freeze(ctx context.Context) error
	// Hold stops every process until Thaw, as Freeze does, but is for a short time only. It keeps
	// the connections, and their data waits. It does not change a frozen sandbox.
	Hold(ctx context.Context) error
	// Thaw lets the processes of a frozen sandbox run again. It is idempotent.
	Thaw(ctx context.Context) error
	// Save copies to dir the files that a frozen sandbox has written, and syncs them to disk. It does
	// not copy the layers. dir belongs to this user, has mode 0700, and is empty except for the
	// directory of a SaveMemory. dir is then a value for [SandboxOptions].Files.
	Save(ctx context.Context, dir string) error
	// SaveLayer saves the same files as Save, but as a layer for [SandboxOptions].Layers. dir is an
	// empty directory of a file system for which CheckLayers returned nil. The returned function
	// complete syncs the layer. The layer can only be used after complete has returned. The sandbox
	// may already be thawed before complete is called. After an error of SaveLayer or of complete, the
	// content of dir is useless. If the error of SaveLayer matches the [LackError] of SharedLayers,
	// nothing was written, and the caller uses Save instead.
	SaveLayer(ctx context.Context, dir string) (complete func() error, err error)
	// SaveMemory writes the memory of a frozen sandbox to dir and syncs dir to disk. dir is an empty
	// directory with the owner and mode that Save requires. The saved memory consists of the memory of
	// all processes and of everything that the processes have open, except connections from outside. Processes may
	// run for a moment before their memory is written, but not between the writing and Thaw. So only a
	// Save after SaveMemory saves the files that match the memory. dir is then a value for
	// [SandboxOptions].Memory. After an error, the sandbox is frozen or has ended. Only an engine that
	// promises [SavedMemory] supports SaveMemory; other engines return an error that matches
	// [errors.ErrUnsupported].
	SaveMemory(ctx context.Context, dir string) error
	// Resize changes the processors, the memory and the disk of a held sandbox to those of l. It
	// changes no other limits. Programs that start later count the new processors and memory if the
	// engine can show them. If the sandbox uses more than l allows, the error is an [*InUseError]. After
	// an error, the sandbox has its earlier limits. Only an engine that promises [Resizes] supports
	// Resize; other engines return the [LackError] of Resizes. If the engine cannot change one of
	// the limits that differ, the error is the [LackError] of that limit.
	Resize(ctx context.Context, l Limits) error
	// Memory returns the bytes of memory in use that cannot be reclaimed; 0 means unknown.
	Memory() int64
	// Usage returns the current usage, and false if it is unknown, for example after the sandbox's
	// end.
	Usage() (Usage, bool)
}

// Suspender is a sandbox that may have a home directory which outlives its processes, but not their
// memory.
type Suspender interface {
	Sandbox
	// Suspends reports whether the sandbox has such a home. Then Freeze ends all processes, and keeps
	// only the home. Thaw starts the sandbox again, with the files of its home. After a Freeze that was
	// interrupted, the processes may still run for a moment.
	Suspends() bool
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
	// Config is the configuration of envd. An engine may change values that are different in its
	// sandboxes, such as limits and the user. If the encoded Config is longer than
	// [guest.MaxConfig], the error of NewSandbox matches [ErrTooLarge].
	Config guest.Config
	// Egress connects the sandbox to the outside. If it is nil, the sandbox has no egress, and
	// SetEgress cannot set one later.
	Egress Egress
	// Names are names with addresses of Egress, for /etc/hosts. A program that resolves one of them
	// asks no name server. Only sandboxes with a network of their own have them, because the addresses
	// lead nowhere else.
	Names map[string]netip.Addr
	// Tell is called with each report of the daemon in the sandbox. A report is one line of JSON of a few KiB at
	// most, and is not trusted. Only one goroutine calls Tell. A nil Tell discards reports.
	Tell func(line []byte)
	// Layers are directories made by SaveLayer, UnpackTar or Merge, lowest first. The sandbox sees
	// the files of these layers below the files that it writes itself. Any number of sandboxes can
	// share layers. Layers are only read, and must not change until Close.
	Layers []string
	// Files is a directory that [Sandbox].Save filled. The sandbox starts with the files in this
	// directory. "" means no files. The directory is only read, and only during the start. The saved
	// sandbox must have had the same Layers as the new sandbox.
	Files string
	// Memory is a directory that [Sandbox].SaveMemory filled. The processes of the saved sandbox
	// continue in the new sandbox. Layers and Files must be those of the saved sandbox. All other
	// options may differ, and take effect. Connections from outside are cut. "" means that envd
	// starts anew. The directory is only read, and only during the start. If this machine cannot
	// restore the memory, the error matches [ErrOtherMachine].
	Memory string
	// Image is the container image from which the sandbox is made, without any programs of this
	// machine. If Image is nil, the engine chooses the programs in the sandbox.
	Image *Image
	// Authority is the PEM certificate of an authority that programs in the sandbox trust in addition
	// to the authorities of the machine. [Sandbox].Save does not save it. If the sandbox cannot have
	// an authority, the error is the [LackError] of HeaderRules.
	Authority []byte
	// Volumes are directories that the sandbox shares with other sandboxes and with the host.
	// [Sandbox].Save does not save their content. If volumes are impossible, the error is the
	// [LackError] of Volumes.
	Volumes []Volume
	// Mounts are directories of the host that are mounted in the sandbox. [Sandbox].Save does not
	// save their content. If mounts are impossible, the error is the [LackError] of Mounts.
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

// Image is the container image that a sandbox is made from. If the engine does not fetch images
// itself, the files of the image are in [SandboxOptions].Layers.
type Image struct {
	// Reference is the requested name, and Digest is the digest of the manifest. Both are used in
	// messages, and by an engine that fetches images itself.
	Reference, Digest string
}

// Mount is a directory of the host that is mounted in a sandbox. In the sandbox, files of the
// directory's owner belong to the user of the sandbox; all other files belong to nobody.
type Mount struct {
	Dir      string // absolute path of the directory on the host
	Path     string // absolute path in the sandbox; not the root
	Writable bool
	// File is the opened directory. If the engine can mount an opened directory, it mounts File even
	// if the path Dir now leads to another directory. If File is nil, the engine opens Dir. The
	// caller closes File after NewSandbox.
	File *os.File
}

// Volume is a directory of the host that is mounted in a sandbox. The files of the directory belong to
// the ids of the sandbox, which are numbered from 0. If sandboxes have a single id, the files belong
// to the server's id. Nobody else may have access to the directory. The directory must exist until
// Close.
type Volume struct {
	Dir  string // absolute path of the directory on the host
	Path string // absolute path in the sandbox; not the root
	// Clone returns a detached mount of Dir. Clone is set if only the caller can make such a mount.
	// The volume is then only for sandboxes that have many ids. If Clone is nil, Dir is an ordinary
	// directory.
	Clone func() (*os.File, error)
}
