//go:build linux

// Package chaintest provides processes that are hard to end, for tests that end them.
package chaintest

import (
	"os"

	"golang.org/x/sys/unix"
)

// Script starts a few chains of processes, in which each process starts the next one and ends. All
// of them hold the lock on a file in the home. Chains that nothing ends stop after half a minute,
// and write that to the file.
const Script = `
import fcntl, os, time
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3): os.dup2(null, fd)
end = time.monotonic() + 30
for i in range(7):
    if os.fork() == 0: break
while time.monotonic() < end:
    try:
        if os.fork(): os._exit(0)
        os.setsid()
    except OSError: pass
lock.write("outlived")
`

// IsFree takes the lock on f if no other process holds it, and reports whether it did.
func IsFree(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
