//go:build linux

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Arguments have 64 bits, with the low half first on both
// architectures.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// architecture describes a processor architecture.
type architecture struct {
	audit  uint32         // the kernel's AUDIT_ARCH number
	number func(call) int // returns the number of a call
}

// architectures are the supported architectures, by GOARCH.
var architectures = map[string]architecture{
	"amd64": {unix.AUDIT_ARCH_X86_64, func(c call) int { return c.amd64 }},
	"arm64": {unix.AUDIT_ARCH_AARCH64, func(c call) int { return c.arm64 }},
}

// program returns the filter that applies the calls' rules on an architecture. A call that is not
// in the table is newer than the table or belongs to another architecture. It fails with ENOSYS,
// because many programs then use an older call.
func program(arch architecture, calls []call) filter {
	var f filter
	f.load(offsetArch)
	f.jump(unix.BPF_JEQ, arch.audit, 1, 0)
	f.refuse(unix.ENOSYS)
	f.load(offsetNumber)
	return slices.Concat(f, search(decisions(arch, calls)))
}

// decision is the code that handles the calls from a number up to the number of the next decision.
type decision struct {
	first uint32
	code  filter
	often bool // programs make the call all the time
}

// decisions returns the decisions for all numbers of calls, in ascending order. Neighbouring
// numbers with the same code share one decision. Unknown numbers are refused with ENOSYS. The last
// decision also applies to all higher numbers.
func decisions(arch architecture, calls []call) []decision {
	unknown := decision{code: refuse(unix.ENOSYS).compile()}
	var all []decision // sorted by number
	for _, c := range calls {
		n := arch.number(c)
		if n == none {
			continue
		}
		for n >= len(all) {
			all = append(all, unknown)
		}
		all[n] = decision{code: c.rule.compile(), often: c.rule.often}
	}
	all = append(all, unknown) // also for all higher numbers; on amd64 these include the x32 calls
	var found []decision
	for n, d := range all {
		if n == 0 || !slices.Equal(d.code, all[n-1].code) {
			d.first = uint32(n)
			found = append(found, d)
		}
	}
	return found
}

// search returns the code that finds and makes the decision about the loaded number. It halves the
// decisions repeatedly, so that no call needs many comparisons. (The kernel remembers calls that
// are always allowed, and does not run the filter for them.)
func search(decisions []decision) filter {
	if len(decisions) == 1 {
		return decisions[0].code
	}
	middle := half(decisions)
	low, high := search(decisions[:middle]), search(decisions[middle:])
	var f filter
	if len(low) <= longestJump {
		f.jump(unix.BPF_JGE, decisions[middle].first, len(low), 0)
	} else {
		f.jump(unix.BPF_JGE, decisions[middle].first, 0, 1)
		f.step(unix.BPF_JMP|unix.BPF_JA, uint32(len(low)))
	}
	return slices.Concat(f, low, high)
}

// half returns the index that divides decisions into two parts of about the same weight. The index
// is at least 1.
func half(decisions []decision) int {
	total := 0
	for _, d := range decisions {
		total += d.weight()
	}
	middle, before := 1, decisions[0].weight()
	for ; middle < len(decisions)-1 && 2*before+decisions[middle].weight() <= total; middle++ {
		before += decisions[middle].weight()
	}
	return middle
}

// weight returns the weight of a decision in [half]. It is larger for a decision that should take
// fewer comparisons. Refused calls have a small weight, because they may be slow. Calls with
// checked arguments have a larger weight, because their check takes further instructions.
func (d decision) weight() int {
	switch {
	case d.often:
		return 16
	case len(d.code) > 1:
		return max(4, len(d.code)/4)
	case d.code[0].K == unix.SECCOMP_RET_ALLOW:
		return 2
	default:
		return 1
	}
}

// filter is a seccomp program under construction.
type filter []unix.SockFilter

// longestJump is the largest number of instructions that a conditional jump can skip.
const longestJump = 255

func (f *filter) step(code uint16, k uint32) { *f = append(*f, unix.SockFilter{Code: code, K: k}) }

func (f *filter) load(offset uint32) { f.step(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }

func (f *filter) answer(action uint32) { f.step(unix.BPF_RET|unix.BPF_K, action) }

func (f *filter) refuse(errno unix.Errno) { f.answer(unix.SECCOMP_RET_ERRNO | uint32(errno)) }

func (f *filter) jump(op uint16, k uint32, yes, no int) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: uint8(yes), Jf: uint8(no), K: k})
}
