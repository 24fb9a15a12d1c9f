//go:build linux

package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// machine runs a filter.
type machine struct {
	arch    string
	shared  bool
	program filter
	vm      *bpf.VM
	// expected has the lines of testdata/calls.txt by number.
	expected map[uint32]line
}

// machines returns one machine for every filter.
func machines(t testing.TB) []machine {
	t.Helper()
	lines := readCalls(t)
	var all []machine
	for _, arch := range []string{"amd64", "arm64"} {
		for _, shared := range []bool{true, false} {
			table := calls
			if !shared {
				table = callsInPlace(testKey)
			}
			m := machine{arch: arch, shared: shared, program: program(architectures[arch], table), expected: map[uint32]line{}}
			m.vm = newVM(t, m.program)
			for _, l := range lines {
				if number, ok := l.numbers[arch]; ok {
					m.expected[uint32(number)] = l
				}
			}
			all = append(all, m)
		}
	}
	return all
}

func newVM(t testing.TB, program filter) *bpf.VM {
	t.Helper()
	raw := make([]bpf.RawInstruction, len(program))
	for i, f := range program {
		raw[i] = bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	instructions, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter has unknown instructions")
	}
	vm, err := bpf.NewVM(instructions)
	must.Do(t, err)
	return vm
}

func (m machine) String() string {
	if m.shared {
		return m.arch + " with namespaces"
	}
	return m.arch + " in place"
}

// data is a struct seccomp_data. Its words are big-endian, because that is how the
// machine loads them.
type data [64]byte

func newData(arch, number uint32, pointer uint64, arguments [6]uint64) *data {
	var d data
	binary.BigEndian.PutUint32(d[0:], number)
	binary.BigEndian.PutUint32(d[4:], arch)
	d.long(8, pointer)
	for i, a := range arguments {
		d.long(16+8*i, a)
	}
	return &d
}

// long stores 64 bits as both architectures do, the low half first.
func (d *data) long(offset int, value uint64) {
	binary.BigEndian.PutUint32(d[offset:], uint32(value))
	binary.BigEndian.PutUint32(d[offset+4:], uint32(value>>32))
}

func (m machine) run(t testing.TB, d *data) uint32 {
	t.Helper()
	result, err := m.vm.Run(d[:])
	if err != nil {
		t.Fatalf("%s: %v", m, err)
	}
	return uint32(result)
}

// expect returns the answer given in testdata/calls.txt.
func (m machine) expect(arch, number uint32, arguments [6]uint64) uint32 {
	if arch != audit[m.arch] {
		return unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	}
	if l, ok := m.expected[number]; ok {
		return l.answer(m.shared).decide(arguments)
	}
	return unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
}

// audit has the names of architectures as linux/audit.h computes them: the machine
// of ELF, 64 bits, little-endian.
var audit = map[string]uint32{"amd64": 62 | 0x80000000 | 0x40000000, "arm64": 183 | 0x80000000 | 0x40000000}

func (m machine) check(t testing.TB, arch, number uint32, pointer uint64, arguments [6]uint64) {
	t.Helper()
	got, want := m.run(t, newData(arch, number, pointer, arguments)), m.expect(arch, number, arguments)
	if got != want {
		t.Errorf("%s: call %#x %s of architecture %#x with arguments %#x: %s, want %s",
			m, number, m.expected[number].name, arch, arguments, verdict(got), verdict(want))
	}
}

func verdict(result uint32) string {
	switch {
	case result == unix.SECCOMP_RET_ALLOW:
		return "allow"
	case result == unix.SECCOMP_RET_USER_NOTIF:
		return "ask"
	case result&^0xffff == unix.SECCOMP_RET_ERRNO:
		return unix.Errno(result & 0xffff).Error()
	default:
		return fmt.Sprintf("%#x", result)
	}
}

// numbers returns at least one number of each kind that a filter can distinguish:
// the first 1024 and as many of x32, numbers with a single bit, negative ones, and
// the neighbours of every number with which the filter compares. Between two of
// these comparisons all numbers take the same path.
func (m machine) numbers() []uint32 {
	var all []uint32
	for n := range uint32(1024) {
		all = append(all, n, n|0x40000000, n|0x80000000, -n)
	}
	for bit := range 32 {
		all = append(all, 1<<bit-1, 1<<bit, 1<<bit+1)
	}
	for _, f := range m.program {
		all = append(all, f.K-1, f.K, f.K+1)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestEveryNumber tries every call, with arguments that must not matter.
func TestEveryNumber(t *testing.T) {
	t.Parallel()
	for _, m := range machines(t) {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			ones := [6]uint64{}
			for i := range ones {
				ones[i] = ^uint64(0)
			}
			for _, number := range m.numbers() {
				m.check(t, audit[m.arch], number, 0, [6]uint64{})
				m.check(t, audit[m.arch], number, ^uint64(0), ones)
			}
			for number := range uint32(512) {
				for argument := range 6 {
					for _, value := range around(0) {
						var arguments [6]uint64
						arguments[argument] = value
						m.check(t, audit[m.arch], number, 0, arguments)
					}
				}
			}
		})
	}
}

// TestArguments tries calls whose arguments matter with all values at which their
// answers may change, and the values around them.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, m := range machines(t) {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			for number, l := range m.expected {
				a := l.answer(m.shared)
				if len(a.turns()) == 0 {
					continue
				}
				tried := map[uint32]int{}
				every(a.turns(), func(arguments [6]uint64) {
					m.check(t, audit[m.arch], number, 0, arguments)
					tried[a.decide(arguments)]++
				})
				if answers := map[bool]int{true: 3, false: 2}[a.asks && a.word != ""]; len(tried) != answers {
					t.Errorf("%s: the values show other than its %d answers: %v", l.name, answers, tried)
				}
			}
		})
	}
}

// every calls f with all combinations of values around the turns.
func every(turns map[int][]uint64, f func([6]uint64)) {
	all := [][6]uint64{{}}
	for argument, values := range turns {
		var more [][6]uint64
		for _, value := range around(values...) {
			for _, arguments := range all {
				arguments[argument] = value
				more = append(more, arguments)
			}
		}
		all = more
	}
	for _, arguments := range all {
		f(arguments)
	}
}

// TestOtherArchitectures checks calls of 32-bit programs: a 64-bit kernel also
// accepts them, under other numbers.
func TestOtherArchitectures(t *testing.T) {
	t.Parallel()
	for _, m := range machines(t) {
		for _, other := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_AARCH64} {
			if other == audit[m.arch] {
				continue
			}
			for _, number := range m.numbers() {
				m.check(t, other, number, 0, [6]uint64{})
			}
		}
		for _, other := range around(uint64(audit[m.arch])) {
			if uint32(other) == audit[m.arch] {
				continue
			}
			for _, number := range []uint32{0, 1, 56, 63, ^uint32(0)} {
				m.check(t, uint32(other), number, 0, [6]uint64{})
			}
		}
	}
}

// FuzzFilter looks for calls for which the filters and testdata/calls.txt differ.
func FuzzFilter(f *testing.F) {
	all := machines(f)
	for _, m := range all {
		for number, l := range m.expected {
			if turns := l.answer(m.shared).turns(); len(turns) > 0 {
				var arguments [6]uint64
				for argument, values := range turns {
					arguments[argument] = values[0]
				}
				f.Add(audit[m.arch], number, uint64(0), arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5])
			}
		}
		f.Add(audit[m.arch], uint32(0x40000000), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0))
	}
	f.Fuzz(func(t *testing.T, arch, number uint32, pointer, a0, a1, a2, a3, a4, a5 uint64) {
		for _, m := range all {
			arguments := [6]uint64{a0, a1, a2, a3, a4, a5}
			m.check(t, arch, number, pointer, arguments)
			m.check(t, audit[m.arch], number, pointer, arguments)
			m.check(t, audit[m.arch], number%512, pointer, arguments) // most calls have these numbers
		}
	})
}

// TestCost checks that frequent calls take few instructions, and that no call takes
// many. The filter reads no argument of calls that are always allowed, so the kernel
// can remember them and not run the filter at all.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, m := range machines(t) {
		for number, l := range m.expected {
			steps, looked := m.trace(t, newData(audit[m.arch], number, 0, [6]uint64{}))
			limit := 24
			if slices.Contains([]string{"read", "write", "close", "futex", "epoll_wait", "epoll_pwait", "mmap", "openat"}, l.name) {
				limit = 12
				t.Logf("%s: %s takes %d instructions", m, l.name, steps)
			}
			if steps > limit {
				t.Errorf("%s: %s takes %d instructions, more than %d", m, l.name, steps, limit)
			}
			if looked && len(l.answer(m.shared).turns()) == 0 {
				t.Errorf("%s: the filter looks at an argument of %s", m, l.name)
			}
		}
		t.Logf("%s: %d instructions in all", m, len(m.program))
	}
}

// TestKeyTime checks that a key with one right half takes as long as one that is
// wrong altogether, so that an attacker cannot find it by halves.
func TestKeyTime(t *testing.T) {
	t.Parallel()
	for _, m := range machines(t) {
		if m.shared {
			continue
		}
		for number, l := range m.expected {
			taken := map[int]bool{}
			for _, key := range append([]uint64{0}, nearKeys[1:]...) {
				steps, _ := m.trace(t, newData(audit[m.arch], number, 0, [6]uint64{5: key}))
				taken[steps] = true
			}
			if len(taken) != 1 {
				t.Errorf("%s: %s takes various numbers of instructions for wrong keys: %v", m, l.name, taken)
			}
		}
	}
}

// trace counts the instructions of the filter that decide about a call, and reports
// whether they load an argument.
func (m machine) trace(t testing.TB, d *data) (steps int, looked bool) {
	t.Helper()
	var loaded, kept uint32
	for at := 0; ; at++ {
		steps++
		f := m.program[at]
		skip := map[bool]int{true: int(f.Jt), false: int(f.Jf)}
		switch f.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			loaded = binary.BigEndian.Uint32(d[f.K:])
			looked = looked || f.K >= 16
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			loaded &= f.K
		case unix.BPF_ALU | unix.BPF_XOR | unix.BPF_K:
			loaded ^= f.K
		case unix.BPF_ALU | unix.BPF_OR | unix.BPF_X:
			loaded |= kept
		case unix.BPF_MISC | unix.BPF_TAX:
			kept = loaded
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(f.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			at += skip[loaded == f.K]
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			at += skip[loaded&f.K != 0]
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			at += skip[loaded >= f.K]
		case unix.BPF_RET | unix.BPF_K:
			return steps, looked
		default:
			t.Fatalf("%s: instruction %#x, which the kernel may not take in a filter", m, f.Code)
		}
	}
}

// TestLargeTable checks that the halves of a table may be longer than a conditional
// jump.
func TestLargeTable(t *testing.T) {
	t.Parallel()
	for _, size := range []int{102, 104, 600} { // the first half is just short enough, just too long, far too long
		large := make([]call, size)
		for i := range large {
			large[i] = call{amd64: i, rule: allowIf(unix.EPERM, all{is(0, uint32(i))})}
		}
		m := machine{vm: newVM(t, program(architectures["amd64"], large))}
		for number := range uint32(2 * size) {
			for _, argument := range []uint32{number, number + 1} {
				want := unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
				if number >= uint32(size) {
					want = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
				} else if argument == number {
					want = unix.SECCOMP_RET_ALLOW
				}
				got := m.run(t, newData(audit["amd64"], number, 0, [6]uint64{uint64(argument)}))
				if got != want {
					t.Errorf("call %d of %d with %d: %s, want %s", number, size, argument, verdict(got), verdict(want))
				}
			}
		}
	}
}

// TestProgram checks that the bytes that other processes apply are the same filter.
func TestProgram(t *testing.T) {
	t.Parallel()
	want, err := filterFor(runtime.GOARCH, calls)
	bytes := Program()
	if err != nil {
		if len(bytes) != 0 {
			t.Errorf("a filter, and %v", err)
		}
		return
	}
	if len(bytes) != 8*len(want) {
		t.Fatalf("%d bytes for %d instructions", len(bytes), len(want))
	}
	for i, f := range want {
		b := bytes[8*i:]
		got := unix.SockFilter{Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])}
		if got != f {
			t.Errorf("instruction %d is %+v, want %+v", i, got, f)
		}
	}
}

// TestUnknownArchitecture checks that there is no filter without a list of calls,
// and that nothing starts.
func TestUnknownArchitecture(t *testing.T) {
	t.Parallel()
	for _, goarch := range []string{"386", "arm", "riscv64", "s390x", ""} {
		if f, err := filterFor(goarch, calls); err == nil || f != nil {
			t.Errorf("%q has a filter of %d instructions, and the error %v", goarch, len(f), err)
		}
	}
}
