//go:build linux

package envd

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// leasePatience bounds the time that an open waits for the end of leases.
const leasePatience = time.Second

// openPatiently opens a file. It does not wait for the other end of a pipe. It waits up to
// leasePatience for the end of a lease on the file. Such a lease exists on the text of the
// sandbox's /proc/meminfo while a process writes this text.
func openPatiently(path string, flags int) (f *os.File, err error) {
	for pause, waited := time.Millisecond, time.Duration(0); ; pause *= 2 {
		f, err = os.OpenFile(path, flags, 0)
		if !errors.Is(err, unix.EAGAIN) || waited > leasePatience {
			return f, err
		}
		<-time.After(pause)
		waited += pause
	}
}
