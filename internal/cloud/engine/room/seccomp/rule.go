//go:build linux

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// rule decides about a call: it is allowed if all conditions of one of the
// alternatives hold, and otherwise refused with an error.
type rule struct {
	allowed []all
	refusal unix.Errno
}

// all are conditions that must hold together.
type all []condition

// condition is about one half of an argument. For an int the kernel uses only the
// low half, so the other one does not matter.
type condition struct {
	half  uint32 // its offset
	mask  uint32 // the bits that matter; 0 means all of them
	value uint32
	not   bool // it must be anything except value
}

// allow allows a call whatever its arguments are.
var allow = rule{allowed: []all{{}}}

func refuse(refusal unix.Errno) rule { return rule{refusal: refusal} }

func allowIf(refusal unix.Errno, alternatives ...all) rule { return rule{alternatives, refusal} }

func is(argument, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, value: value}
}

func isNot(argument, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, value: value, not: true}
}

func masked(argument, mask, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, mask: mask, value: value}
}

// isNull is about a pointer, of which both halves count.
func isNull(argument uint32) all {
	return all{is(argument, 0), {half: offsetArgs + 8*argument + 4}}
}

// compile returns the instructions that make the final decision.
func (r rule) compile() filter {
	var f filter
	for _, alternative := range r.allowed {
		f = append(f, alternative.compile()...)
		if len(alternative) == 0 {
			return f // there is nothing left to refuse
		}
	}
	f.refuse(r.refusal)
	return f
}

// compile returns instructions that allow the call if all conditions hold, and
// otherwise continue behind them.
func (a all) compile() filter {
	var f filter
	if len(a) == 0 {
		f.answer(unix.SECCOMP_RET_ALLOW)
		return f
	}
	c, rest := a[0], a[1:].compile()
	f.load(c.half)
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
