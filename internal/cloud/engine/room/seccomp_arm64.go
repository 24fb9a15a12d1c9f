//go:build linux

package room

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archSyscalls are those of this architecture alone: none.
var archSyscalls []uint32
