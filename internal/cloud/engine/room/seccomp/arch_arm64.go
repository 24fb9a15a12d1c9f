//go:build linux

package seccomp

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archSyscalls are the calls that only this architecture has: none.
var archSyscalls []uint32
