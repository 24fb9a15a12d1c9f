//go:build linux

// Package chaintest provides processes that are hard to end, for the tests of code that ends
// processes.
package chaintest

import (
	"os"

	"golang.org/x/sys/unix"
)

// Script is a Python program that starts a few chains of processes. In a chain, each process starts
// the next process and ends. All processes hold the lock on the file "lock" in the home directory. A
// chain that nothing ends stops after half a minute, and records this in the file.
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

// IsFree tries to take the lock on f, and reports whether it took the lock. It does not take the lock
// if another process holds it.
func IsFree(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
