//go:build linux

package inside

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// builder has the steps of the first stage that differ between sandboxes with a file system of their
// own.
type builder interface {
	// start prepares this process for programs, before anything is built.
	start(spec *wire.InitSpec, files *wire.Files) error
	// showKernel makes /proc and /sys in the root that construct makes. nodes are nil if the root
	// replaces another one.
	showKernel(b *built, spec *wire.InitSpec, nodes []*os.File) error
	// enter makes the directories that construct made the root of this process.
	enter(spec *wire.InitSpec) error
	// execute executes the second stage with the rights that it may have.
	execute(c *wire.Conn, spec *wire.InitSpec) error
}

// built is the result of building the file system of a sandbox.
type built struct {
	notes    []string        // weaknesses of this kernel
	meminfo  *os.File        // the text of /proc/meminfo, open for writing; nil with gVisor
	proc     *os.File        // /proc; nil with gVisor
	files    *os.File        // the file system that the sandbox writes to
	restored map[string]bool // trees with an upper directory that is already filled
	lost     []string        // trees that are only in the layers and saved files
}

// passed returns the files for the server: the open files of the new file system, and the sockets
// of the egress path.
func (b *built) passed(sockets []*os.File) *wire.Files {
	var files wire.Files
	files.Add(wire.FileFiles, b.files)
	if b.meminfo != nil {
		files.Add(wire.FileMeminfo, b.meminfo)
		files.Add(wire.FileProc, b.proc)
	}
	files.AddList(wire.FileEgress, sockets)
	return &files
}

// build makes the file system of a sandbox. It also moves this process into that file system,
// unless a later step does so. Everything writable is on one tmpfs, whose size is the disk limit:
//
//	root/     becomes /
//	lower/N   the Nth tree as it is on the host, read-only
//	hidden/N  whiteouts of the Nth tree's private files, if the layers change the tree
//	layers/N  the Nth layer from below, read-only
//	upper/N   the sandbox's changes to the Nth tree, or to root if there are layers
//	work/N    the work directory of overlayfs
//	own/      /dev and /sys of a sandbox of an image
//	meminfo   the text of /proc/meminfo
//	cpuinfo   the text of /proc/cpuinfo
//	boot_id   the text of /proc/sys/kernel/random/boot_id
//
// Without gVisor, only root stays visible. With gVisor, root becomes the root of gVisor's sandbox, and
// gVisor starts its program there: see gvisorroot.go.
func build(run builder, spec *wire.InitSpec, passed *wire.Files) (*built, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", os.NewSyscallError("mount", err))
	}
	// All parts come first: the staging directory is mounted over a directory of the host,
	// and hides what is below it.
	p, err := openParts(spec, passed)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if p.nodes, err = openNodes(hostDevices); err != nil {
		return nil, err
	}
	stage, err := stagingDirectory()
	if err != nil {
		return nil, err
	}
	size, inodes := diskSize(spec.Disk)
	options := fmt.Sprintf("mode=0755,size=%s,nr_inodes=%s", size, inodes)
	if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NODEV, options); err != nil {
		return nil, fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := os.Chdir(stage); err != nil {
		return nil, err
	}
	files, err := openStage()
	if err != nil {
		return nil, err
	}
	b, err := construct(run, spec, p, files)
	if err != nil || spec.Late {
		return b, err
	}
	return b, run.enter(spec)
}

// finish enters the root that construct made.
func finish(authority []byte, trees []string) error {
	if err := enter(); err != nil {
		return err
	}
	if err := leaveOldRoot(); err != nil {
		return err
	}
	if len(authority) > 0 {
		if err := showAuthority(authority, trees); err != nil {
			return fmt.Errorf("show the certificate authority: %w", err)
		}
	}
	return nil
}

// parts are the parts of a file system, all of them detached.
type parts struct {
	trees, layers, volumes []*os.File

	nodes   []*os.File // the device nodes; if nil, the nodes of the replaced file system are used
	made    *os.File   // a mount with the sandbox's own devices
	private []string
	saved   *os.File
}

// openParts takes the parts that were passed, and opens the others. It is an error if passed then
// still contains a file.
func openParts(spec *wire.InitSpec, passed *wire.Files) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.saved, err = passed.TakeWhen(spec.Saved != "", wire.FileSaved); err != nil {
		return nil, err
	}
	list, err := passed.TakeWhen(spec.Private, wire.FilePrivate)
	if err != nil {
		return nil, err
	}
	if list != nil {
		if p.private, err = readPrivate(list); err != nil {
			return nil, err
		}
	}
	if p.made, err = passed.TakeWhen(spec.Devices, wire.FileDevices); err != nil {
		return nil, err
	}
	if p.trees, err = openTrees(spec, passed); err != nil {
		return nil, err
	}
	if p.layers, err = openLayers(spec.Layers, passed); err != nil {
		return nil, err
	}
	if p.volumes, err = openVolumes(spec.Volumes, passed); err != nil {
		return nil, err
	}
	return p, passed.End()
}

// close closes the layers, volumes and nodes. Without this call, they would be closed late or
// never.
func (p *parts) close() {
	for _, files := range [][]*os.File{p.layers, p.volumes, p.nodes} {
		wire.CloseAll(files)
	}
}

// construct makes the file system in the working directory. files refers to that directory.
func construct(run builder, spec *wire.InitSpec, p *parts, files *os.File) (b *built, err error) {
	b = &built{files: files, restored: make(map[string]bool)}
	for _, dir := range []string{"root", "lower", "upper", "work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := b.makeRoot(spec, p); err != nil {
		return nil, err
	}
	if p.made != nil {
		wire.CloseAll(p.nodes)
		if p.nodes, err = openMade(p.made); err != nil {
			return nil, err
		}
	}
	if err := mountDevices(p.nodes, spec.Ranged); err != nil { // before the trees, because hidden files may be replaced by a device
		return nil, err
	}
	for i, path := range spec.Trees {
		var tree *os.File // nil for a tree that is only in the layers and saved files
		if i < len(p.trees) {
			tree = p.trees[i]
		}
		if err := b.mountTree(i, spec, tree, below(path, p.private)); err != nil {
			return nil, fmt.Errorf("show %s: %w", path, err)
		}
	}
	if err := run.showKernel(b, spec, p.nodes); err != nil {
		return nil, err
	}
	if err := mountVolumes(spec.Volumes, p.volumes); err != nil {
		return nil, err
	}
	return b, nil
}

// makeRoot makes a mount of root with the sandbox's initial content.
func (b *built) makeRoot(spec *wire.InitSpec, p *parts) error {
	if err := b.attachLayers(spec, p.layers); err != nil {
		return err
	}
	if p.saved != nil {
		if err := b.restore(spec, p.saved); err != nil {
			return fmt.Errorf("restore the saved files: %w", err)
		}
	}
	if len(p.layers) > 0 {
		if err := b.mountRoot(spec); err != nil {
			return fmt.Errorf("show the layers: %w", err)
		}
		if err := b.mendSkeleton(spec); err != nil || !spec.Image {
			return err
		}
		if err := b.mendImage(spec.Ranged); err != nil {
			return fmt.Errorf("add to the image: %w", err)
		}
		return nil
	}
	if err := unix.Mount("root", "root", "", unix.MS_BIND, ""); err != nil { // pivot_root requires a mount
		return fmt.Errorf("bind the root: %w", err)
	}
	if p.saved != nil {
		return b.mendSkeleton(spec)
	}
	return writeSkeleton(spec)
}

// makeProc mounts /proc, with the sandbox's own versions of some files.
func (b *built) makeProc(spec *wire.InitSpec) (err error) {
	if err := mountProc(spec.Counters); err != nil {
		return err
	}
	if err := showBoot(); err != nil {
		return err
	}
	if len(spec.Processors) > 0 {
		if err := showProcessors(spec.Processors); err != nil {
			return err
		}
	}
	if spec.Memory > 0 {
		b.meminfo, b.proc, err = showMemory(uint64(spec.Memory))
	}
	return err
}

// enter makes the directory root the root of this process, and of all other processes that had the
// same root before.
func enter() error { return enterAt("root") }

func enterAt(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	// Both arguments are the same directory: the old root ends up on top.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	return nil
}

// leaveOldRoot unmounts the root that enter replaced.
func leaveOldRoot() error {
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the old root: %w", os.NewSyscallError("umount2", err))
	}
	return os.Chdir("/")
}
