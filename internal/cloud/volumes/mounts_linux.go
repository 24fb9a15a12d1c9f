package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// mounts contains the file systems of volumes with a size. These file systems are mounted in a
// separate mount namespace. Only one thread of this process uses the namespace, and the namespace
// ends with this thread. So even if this process is killed, no mount and no loop device is left.
// The zero value is ready to use. A mounts is safe for concurrent use.
//
// Detached mounts would need no namespace, because they would end with the process, too. But only
// Linux 6.15 and newer can clone detached mounts for sandboxes.
type mounts struct {
	mu    sync.Mutex
	calls chan func() // functions for the thread to call; nil: the thread is not started
	ended chan struct{}
}

// onThread calls a function on the thread of the namespace.
func (m *mounts) onThread(f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		calls, ended, began := make(chan func()), make(chan struct{}), make(chan error)
		go serve(calls, ended, began)
		if err := <-began; err != nil {
			return err
		}
		m.calls, m.ended = calls, ended
	}
	var err error
	done := make(chan struct{})
	m.calls <- func() {
		defer close(done)
		err = f()
	}
	<-done
	return err
}

// serve calls functions in a new mount namespace.
func serve(calls <-chan func(), ended chan<- struct{}, began chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The main thread does not end with a goroutine, and /proc/self shows its namespace.
		// While this goroutine keeps it locked, another goroutine gets another thread.
		defer runtime.UnlockOSThread()
		another := make(chan error)
		go serve(calls, ended, another)
		began <- <-another
		return
	}
	// The thread is never unlocked, so it ends with this goroutine.
	defer close(ended)
	err := os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
	if err == nil {
		// Mounts and unmounts outside have an effect inside, but not the reverse.
		err = os.NewSyscallError("mount", unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""))
	}
	if err != nil {
		began <- fmt.Errorf("make a mount namespace (which takes CAP_SYS_ADMIN): %w", err)
		return
	}
	began <- nil
	for call := range calls {
		call()
	}
}

// mount mounts the file system in an image at a directory. It returns the open root directory of the
// file system. unmount closes this root.
func (m *mounts) mount(image, at string) (root *os.File, err error) {
	device, err := attach(image)
	if err != nil {
		return nil, err
	}
	defer device.Close() // from now on the mount uses the device, which is freed with the mount
	err = m.onThread(func() error {
		// With discard, removed files of the volume also free their space outside.
		if err := unix.Mount(device.Name(), at, imageType, unix.MS_NOSUID|unix.MS_NODEV, "discard"); err != nil {
			return &fs.PathError{Op: "mount " + device.Name(), Path: at, Err: err}
		}
		if root, err = os.OpenFile(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
			return errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
		}
		return nil
	})
	return root, err
}

// clone returns a new, detached mount of a directory in a mounted file system. root is the root of
// this file system. name is the path of the directory.
func (m *mounts) clone(root *os.File, name string) (clone *os.File, err error) {
	err = m.onThread(func() error {
		fd, err := unix.OpenTree(int(root.Fd()), name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return &fs.PathError{Op: "clone the mount of", Path: name, Err: err}
		}
		clone = os.NewFile(uintptr(fd), name)
		return nil
	})
	return clone, err
}

// unmount reverses mount. A process that still uses the file system can use it until the process
// ends. An example is a process in a sandbox that is about to end.
func (m *mounts) unmount(root *os.File, at string) error {
	_ = root.Close() // only reads and writes of files can fail
	return m.onThread(func() error {
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "unmount", Path: at, Err: err}
		}
		return nil
	})
}

// end ends the thread and the namespace. It may be called more than once.
func (m *mounts) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls != nil {
		close(m.calls)
		<-m.ended
		m.calls = nil
	}
}

// loopAttempts bounds the attempts to open a free loop device. An attempt fails if another process
// takes the device first.
const loopAttempts = 100

// attach opens a free loop device for an image. The kernel frees the device once it is neither
// open nor mounted.
func attach(image string) (*os.File, error) {
	file, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("this machine has no loop devices, or denies them to this process: %w", err)
	}
	defer control.Close()
	for range loopAttempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open a free loop device: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], image) // shown by losetup
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device, nil
		}
		_ = device.Close() // only reads and writes of files can fail
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("make a loop device of %s: %w", image, err)
		}
	}
	return nil, errors.New("find a free loop device: other processes take them all")
}
