//go:build linux

package inside

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// meminfos keeps the /proc/meminfo of all sandboxes of a room up to date.
//
// It writes a new text when a process opens the file, and does no work otherwise. This works
// because the room has a lease of the file. When another process opens the file, the kernel makes
// that process wait, and sends the room a signal. There is no lease while the file is open, or if
// the machine's administrator has turned leases off. In these cases the text is written after every
// pause. The room has the leases because no process of a sandbox, not even envd, may have a lease.
type meminfos struct {
	mu   sync.Mutex
	kept map[uint64]*meminfo // the files that are kept up to date, by the numbers of their sandboxes
}

// meminfoPause is the time for which a written text stays unchanged.
const meminfoPause = time.Second

// listen begins to wait for opens. Call it before keep; the returned function ends the wait.
func (k *meminfos) listen() (stop func()) {
	k.kept = make(map[uint64]*meminfo)
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, unix.SIGIO)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for range opened {
			k.wake()
		}
	})
	return func() {
		signal.Stop(opened)
		close(opened)
		waiting.Wait()
	}
}

// wake finds the files for which an open waits. It checks all files, because the signal does not name
// the file.
func (k *meminfos) wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.kept {
		if !m.leased {
			continue
		}
		if kind, err := unix.FcntlInt(m.file.Fd(), unix.F_GETLEASE, 0); err != nil || kind != unix.F_WRLCK {
			m.leased = false
			m.opened <- struct{}{} // the channel has space for one of each lease
		}
	}
}

// keep keeps m, the /proc/meminfo of a sandbox, up to date until drop.
func (k *meminfos) keep(sandbox uint64, m *meminfo) {
	k.mu.Lock()
	k.kept[sandbox] = m
	k.mu.Unlock()
	// Otherwise the kernel would address the signal to the thread that takes the lease, as if it
	// were a process. Every process may choose itself.
	_, _ = unix.FcntlInt(m.file.Fd(), unix.F_SETOWN, os.Getpid())
	go func() {
		for k.wait(m) {
			m.write()
			_ = m.lease(unix.F_UNLCK) // there may be none
			select {
			case <-time.After(meminfoPause):
			case <-m.end:
			}
		}
		m.close()
	}()
}

// wait waits until a process opens the file. Without a lease, wait cannot notice that a process
// opens the file, and returns at once. It returns false when the sandbox has ended.
func (k *meminfos) wait(m *meminfo) bool {
	k.mu.Lock()
	leased := m.lease(unix.F_WRLCK) == nil
	m.leased = leased
	k.mu.Unlock()
	select {
	case <-m.end:
		return false
	default:
	}
	if !leased {
		return true
	}
	select {
	case <-m.opened:
		return true
	case <-m.end:
		return false
	}
}

// resize changes the total memory in the file of a sandbox at once. Without such a file it does
// nothing.
func (k *meminfos) resize(sandbox, total uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.kept[sandbox]; m != nil {
		m.resize(total)
	}
}

// drop ends the updates that keep began for the sandbox.
func (k *meminfos) drop(sandbox uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.kept[sandbox]; m != nil {
		delete(k.kept, sandbox)
		close(m.end)
	}
}

// lease takes or gives up a lease of the file, according to kind. The kernel permits a lease only
// to the owner of the file. The owner is the sandbox's root.
func (m *meminfo) lease(kind int) error {
	var file unix.Stat_t
	if err := unix.Fstat(int(m.file.Fd()), &file); err != nil {
		return err
	}
	runtime.LockOSThread()
	own, err := unix.SetfsuidRetUid(int(file.Uid))
	if err == nil {
		_, err = unix.FcntlInt(m.file.Fd(), unix.F_SETLEASE, kind)
	}
	_ = unix.Setfsuid(own) // never fails for the id that the thread came with
	runtime.UnlockOSThread()
	return err
}

// close closes all files. This also gives up the lease.
func (m *meminfo) close() {
	m.file.Close()
	m.proc.Close()
	if m.group != nil {
		m.group.Close()
	}
}
