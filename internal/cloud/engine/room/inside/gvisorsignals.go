//go:build linux

package inside

import (
	"math"

	"golang.org/x/sys/unix"
)

// protectFirst returns a seccomp filter that refuses signals to the first process. The filter has the
// format of container runtimes. Linux itself protects process 1, but gVisor does not. Without the
// filter, root could end the sandbox by mistake, or stop envd permanently.
//
// The filter does not protect envd's other threads. Nobody uses their thread ids by mistake, and root
// can end its own sandbox in other ways.
func protectFirst() any {
	const first = 1
	type object = map[string]any
	// Process ids have 32 bits: gVisor ignores the others.
	is := func(argument, number int) object {
		return object{"index": argument, "op": "SCMP_CMP_MASKED_EQ", "value": uint64(math.MaxUint32), "valueTwo": number}
	}
	isFirst := func(argument int) object { return is(argument, first) }
	other := func(argument int, value unix.Signal) object {
		return object{"index": argument, "op": "SCMP_CMP_NE", "value": int(value)}
	}
	refuse := func(name string, arguments ...object) object {
		return object{"names": []string{name}, "action": "SCMP_ACT_ERRNO", "args": arguments}
	}
	calls := []object{
		refuse("kill", isFirst(0), other(1, 0)), // signal 0 tests whether it exists
		refuse("tkill", isFirst(0)),
		refuse("tgkill", isFirst(0), other(2, unix.SIGURG)), // Go's runtime sends it to threads of envd
		refuse("rt_sigqueueinfo", isFirst(0)),
		refuse("rt_tgsigqueueinfo", isFirst(0)),
		refuse("pidfd_open", isFirst(0)),
		refuse("setpgid", isFirst(1)), // a signal to the sender's group
	}
	// The owner of a file gets a signal when it becomes readable. Envd survives all but these.
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		calls = append(calls, refuse("fcntl", is(1, unix.F_SETSIG), is(2, int(signal))))
	}
	return object{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls}
}
