//go:build linux

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// rule is the filter's treatment of a call. Each alternative is a list of conditions, and holds if
// all its conditions hold. If an alternative in allowed holds, the call is allowed. Otherwise, if
// an alternative in asked holds, the filter asks the holder. Otherwise the filter refuses the call
// with an error.
type rule struct {
	allowed, asked []all
	refusal        unix.Errno
	often          bool // programs make the call all the time, so its decision comes early
}

// all are conditions that must hold together.
type all []condition

// condition tests one half of an argument. If the argument is an int, the kernel uses only the low
// half, so the high half does not matter.
type condition struct {
	half  uint32 // offset of this half of the argument
	mask  uint32 // the bits that matter; 0 means all of them
	value uint32
	not   bool // the half must differ from value
	key   *Key // both halves must be equal to the key; nil means that only one half is compared, with value
}

// allow allows a call with any arguments.
var allow = rule{allowed: []all{{}}}

func refuse(refusal unix.Errno) rule { return rule{refusal: refusal} }

func allowIf(refusal unix.Errno, alternatives ...all) rule {
	return rule{allowed: alternatives, refusal: refusal}
}

func is(argument, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, value: value}
}

func isNot(argument, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, value: value, not: true}
}

func masked(argument, mask, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, mask: mask, value: value}
}

// isNull tests whether a pointer is null. It compares both halves.
func isNull(argument uint32) all {
	return all{is(argument, 0), {half: offsetArgs + 8*argument + 4}}
}

// has returns the conditions that hold for the holder's own calls. The last argument of these calls
// is the key. The kernel ignores this argument.
func has(key Key) all { return all{{half: offsetArgs + 8*5, key: &key}} }

// asking returns a rule that asks the holder about the calls that r allows, unless the holder
// itself makes the call.
func (r rule) asking(key Key) rule {
	asking := rule{asked: r.allowed, refusal: r.refusal}
	for _, alternative := range r.allowed {
		asking.allowed = append(asking.allowed, slices.Concat(alternative, has(key)))
	}
	return asking
}

// forOften returns r for a call that programs make all the time.
func (r rule) forOften() rule {
	r.often = true
	return r
}

// compile returns the instructions that make the final decision.
func (r rule) compile() filter {
	var f filter
	for _, answer := range []struct {
		alternatives []all
		action       uint32
	}{{r.allowed, unix.SECCOMP_RET_ALLOW}, {r.asked, unix.SECCOMP_RET_USER_NOTIF}} {
		for _, alternative := range answer.alternatives {
			f = append(f, alternative.compile(answer.action)...)
			if len(alternative) == 0 {
				return f // the last alternative allows all remaining calls
			}
		}
	}
	f.refuse(r.refusal)
	return f
}

// compile returns instructions that end the filter with answer if all conditions hold. Otherwise
// the filter continues with the instruction after them.
func (a all) compile(answer uint32) filter {
	var f filter
	if len(a) == 0 {
		f.answer(answer)
		return f
	}
	c, rest := a[0], a[1:].compile(answer)
	if c.key != nil {
		f.difference(c.half, *c.key)
	} else {
		f.load(c.half)
	}
	switch {
	case c.mask != 0 && c.value == 0 && !c.not: // none of the bits
		f.jump(unix.BPF_JSET, c.mask, len(rest), 0)
		return slices.Concat(f, rest)
	case c.mask != 0:
		f.step(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, c.mask)
	}
	if c.not {
		f.jump(unix.BPF_JEQ, c.value, len(rest), 0)
	} else {
		f.jump(unix.BPF_JEQ, c.value, 0, len(rest))
	}
	return slices.Concat(f, rest)
}

// difference loads a value that is 0 only if both halves of an argument equal the key. It always
// compares both halves, so that the comparison takes the same time whether the first half is right
// or wrong. If the times differed, an attacker could measure them and find the halves one by one,
// in 2 × 2³² calls instead of 2⁶⁴.
func (f *filter) difference(half uint32, key Key) {
	f.load(half + 4)
	f.step(unix.BPF_ALU|unix.BPF_XOR|unix.BPF_K, uint32(key>>32))
	f.step(unix.BPF_MISC|unix.BPF_TAX, 0)
	f.load(half)
	f.step(unix.BPF_ALU|unix.BPF_XOR|unix.BPF_K, uint32(key))
	f.step(unix.BPF_ALU|unix.BPF_OR|unix.BPF_X, 0)
}
