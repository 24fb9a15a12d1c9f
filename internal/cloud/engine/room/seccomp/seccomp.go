//go:build linux && (amd64 || arm64)

package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Arguments have 64 bits, of which the low half
// comes first on both architectures.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// Apply applies the filter to this thread; everything that the thread
// executes inherits it. If shared is false, calls that reach other processes of the
// same id are refused too: see inPlaceRules. It needs no_new_privs or
// CAP_SYS_ADMIN.
func Apply(shared bool) error {
	filter := instructions(shared)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("apply the seccomp filter: %w", errno)
	}
	return nil
}

// Program returns the filter as it is laid out in memory, for a process that
// applies it to itself.
func Program(shared bool) []byte {
	var data []byte
	for _, f := range instructions(shared) {
		data = binary.NativeEndian.AppendUint16(data, f.Code)
		data = append(data, f.Jt, f.Jf)
		data = binary.NativeEndian.AppendUint32(data, f.K)
	}
	return data
}

// instructions returns an allow-list. Calls that it knows and refuses fail with
// EPERM. Calls that are newer than it, or another architecture's, fail with ENOSYS,
// so that programs fall back to what they did before the call existed.
func instructions(shared bool) []unix.SockFilter {
	var f filter
	f.load(offsetArch)
	f.jump(unix.BPF_JEQ, auditArch, 1, 0)
	f.answer(answerENOSYS)
	f.load(offsetNumber)
	rules := everywhereRules
	if !shared {
		rules = slices.Concat(inPlaceRules, rules)
	}
	for _, r := range rules {
		f.rule(r)
	}
	for _, r := range coalesce(slices.Concat(allowedSyscalls, archSyscalls)) {
		f.jump(unix.BPF_JGE, r.first, 0, 2)
		f.jump(unix.BPF_JGT, r.last, 1, 0)
		f.answer(unix.SECCOMP_RET_ALLOW)
	}
	// Above the last number known here; on amd64 this includes the x32 calls.
	f.jump(unix.BPF_JGT, unix.SYS_LISTNS, 0, 1)
	f.answer(answerENOSYS)
	f.answer(answerEPERM)
	return f
}

// filter is a seccomp program under construction. No jump in it is longer than 255.
type filter []unix.SockFilter

func (f *filter) step(code uint16, k uint32) { *f = append(*f, unix.SockFilter{Code: code, K: k}) }

func (f *filter) load(offset uint32) { f.step(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }

func (f *filter) answer(action uint32) { f.step(unix.BPF_RET|unix.BPF_K, action) }

func (f *filter) jump(op uint16, k uint32, yes, no int) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: uint8(yes), Jf: uint8(no), K: k})
}

// rule makes the final decision about a call; the number of the call must be
// loaded.
func (f *filter) rule(r rule) {
	var decide filter
	for _, all := range r.allowed {
		decide.allowIf(all)
	}
	decide.answer(r.refusal)
	f.jump(unix.BPF_JEQ, r.call, 0, len(decide))
	*f = append(*f, decide...)
}

// allowIf allows the call if all conditions hold, and otherwise continues with the
// next instruction.
func (f *filter) allowIf(all []condition) {
	if len(all) == 0 {
		f.answer(unix.SECCOMP_RET_ALLOW)
		return
	}
	var rest filter
	rest.allowIf(all[1:])
	c := all[0]
	f.load(c.half)
	if c.mask != 0 {
		f.step(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, c.mask)
	}
	if c.not {
		f.jump(unix.BPF_JEQ, c.value, len(rest), 0)
	} else {
		f.jump(unix.BPF_JEQ, c.value, 0, len(rest))
	}
	*f = append(*f, rest...)
}

type numberRange struct{ first, last uint32 }

// coalesce merges numbers into sorted ranges; the kernel caches the verdict for
// numbers that are always allowed, so their order does not matter.
func coalesce(numbers []uint32) []numberRange {
	slices.Sort(numbers)
	var ranges []numberRange
	for _, n := range numbers {
		if last := len(ranges) - 1; last >= 0 && n <= ranges[last].last+1 {
			ranges[last].last = n
			continue
		}
		ranges = append(ranges, numberRange{n, n})
	}
	return ranges
}
