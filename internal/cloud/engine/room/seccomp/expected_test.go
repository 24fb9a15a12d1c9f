//go:build linux

package seccomp

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// line is a call in testdata/calls.txt. The file has its own names and numbers of
// calls, independent of this package's table.
type line struct {
	name        string
	numbers     map[string]int // by GOARCH
	full, place answer         // with namespaces, and in place
	differs     string         // "stricter" or "looser" than Docker, or empty
	reason      string
}

// answer is allow, a refusal, or either, depending on a condition of the file.
type answer struct {
	word    string // empty unless the arguments matter
	refusal unix.Errno
	allowed bool
	asks    bool // where it would allow the call, the filter asks the holder
}

// testKey is the holder's key.
const testKey = 0x123456789abcdef0

// nearKeys are the key, and values with one half of it.
var nearKeys = []uint64{testKey, testKey & 0xffffffff, testKey &^ 0xffffffff, testKey ^ 1, testKey ^ 1<<32}

// turns returns the values of word.turns, and for calls about which the holder is
// asked also its key.
func (a answer) turns() map[int][]uint64 {
	turns := maps.Clone(words[a.word].turns)
	if a.asks {
		if turns == nil {
			turns = map[int][]uint64{}
		}
		turns[5] = nearKeys
	}
	return turns
}

func (l line) answer(shared bool) answer {
	if shared {
		return l.full
	}
	return l.place
}

func readCalls(t testing.TB) []line {
	t.Helper()
	lines, err := parseCalls()
	if err != nil {
		t.Fatalf("testdata/calls.txt: %v", err)
	}
	return lines
}

// parseCalls reads testdata/calls.txt.
func parseCalls() ([]line, error) {
	data, err := os.ReadFile("testdata/calls.txt")
	if err != nil {
		return nil, err
	}
	var lines []line
	for text := range strings.Lines(string(data)) {
		if strings.HasPrefix(text, "#") {
			continue
		}
		fields := strings.Fields(text)
		if len(fields) < 5 {
			return nil, fmt.Errorf("%q has fewer than five columns", text)
		}
		l := line{name: fields[0], numbers: map[string]int{}}
		for column, arch := range []string{"amd64", "arm64"} {
			if field := fields[1+column]; field != "-" {
				if l.numbers[arch], err = strconv.Atoi(field); err != nil {
					return nil, fmt.Errorf("%s: %w", l.name, err)
				}
			}
		}
		if l.full, err = parseAnswer(fields[3]); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		l.place = l.full
		if fields[4] != "=" {
			if l.place, err = parseAnswer(fields[4]); err != nil {
				return nil, fmt.Errorf("%s in place: %w", l.name, err)
			}
		}
		l.differs, l.reason, _ = strings.Cut(strings.Join(fields[5:], " "), ": ")
		lines = append(lines, l)
	}
	return lines, nil
}

func parseAnswer(text string) (a answer, err error) {
	if text == "ask" {
		return answer{allowed: true, asks: true}, nil
	}
	if rest, asks := strings.CutPrefix(text, "ask/"); asks {
		a, err := parseAnswer(rest)
		a.asks = true
		return a, err
	}
	if text == "allow" {
		return answer{allowed: true}, nil
	}
	word, name, ok := strings.Cut(text, "/")
	if !ok {
		word, name = "", text
	} else if _, known := words[word]; !known {
		return answer{}, fmt.Errorf("the word %q has no meaning", word)
	}
	refusal, ok := refusals[name]
	if !ok {
		return answer{}, fmt.Errorf("%q is no answer", text)
	}
	return answer{word: word, refusal: refusal}, nil
}

// refusals are the errors named in testdata/calls.txt.
var refusals = map[string]unix.Errno{
	"EPERM": unix.EPERM, "ENOSYS": unix.ENOSYS, "EOPNOTSUPP": unix.EOPNOTSUPP,
	"EAFNOSUPPORT": unix.EAFNOSUPPORT, "ESOCKTNOSUPPORT": unix.ESOCKTNOSUPPORT,
}

// decide returns the filter's expected answer to a call.
func (a answer) decide(arguments [6]uint64) uint32 {
	if a.allowed || a.word != "" && words[a.word].holds(arguments) {
		if a.asks && arguments[5] != testKey {
			return unix.SECCOMP_RET_USER_NOTIF
		}
		return unix.SECCOMP_RET_ALLOW
	}
	return unix.SECCOMP_RET_ERRNO | uint32(a.refusal)
}

// word is a condition of testdata/calls.txt.
type word struct {
	holds func(a [6]uint64) bool
	// turns has, for each argument that matters, the values at which the answer may
	// change.
	turns map[int][]uint64
}

// words are the conditions of testdata/calls.txt, with the types that the arguments
// have in the kernel.
var words = map[string]word{
	"no-namespaces": {
		func(a [6]uint64) bool {
			flags := uint32(a[0])
			for _, namespace := range []uint32{
				unix.CLONE_NEWCGROUP, unix.CLONE_NEWIPC, unix.CLONE_NEWNET, unix.CLONE_NEWNS,
				unix.CLONE_NEWPID, unix.CLONE_NEWUSER, unix.CLONE_NEWUTS,
			} {
				if flags&namespace != 0 {
					return false
				}
			}
			return true
		},
		map[int][]uint64{0: {0, 0x7e020000, 0x01200011, 0x003d0f00}}, // all namespaces; what fork and threads set
	},
	"family": {
		func(a [6]uint64) bool {
			switch domain, protocol := int32(a[0]), int32(a[2]); domain {
			case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6:
				return true
			case unix.AF_NETLINK:
				return protocol == unix.NETLINK_ROUTE
			default:
				return false
			}
		},
		map[int][]uint64{
			0: {unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_ALG, unix.AF_VSOCK},
			2: {unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER},
		},
	},
	"unix-pair": {
		func(a [6]uint64) bool { return int32(a[0]) == unix.AF_UNIX },
		map[int][]uint64{0: {unix.AF_UNIX}},
	},
	"stream-pair": {
		func(a [6]uint64) bool {
			family, kind := int32(a[0]), int32(a[1])&0xf // the rest are flags
			return family == unix.AF_UNIX && (kind == unix.SOCK_STREAM || kind == unix.SOCK_SEQPACKET)
		},
		map[int][]uint64{
			0: {unix.AF_UNIX},
			1: {unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC, unix.SOCK_STREAM | unix.SOCK_NONBLOCK},
		},
	},
	"no-typing": {
		func(a [6]uint64) bool {
			command := uint32(a[1])
			return command != unix.TIOCSTI && command != unix.TIOCLINUX
		},
		map[int][]uint64{1: {unix.TIOCSTI, unix.TIOCLINUX}},
	},
	"persona": {
		func(a [6]uint64) bool {
			switch uint32(a[0]) {
			case 0, 8, 0x20000, 0x20008, 0x40000, 0xffffffff:
				return true
			default:
				return false
			}
		},
		map[int][]uint64{0: {0, 8, 0x20000, 0x20008, 0x40000, 0x60008, 0xffffffff}},
	},
	"itself": {
		func(a [6]uint64) bool { return int32(a[0]) == 0 },
		map[int][]uint64{0: {0}},
	},
	"own-limits": {
		func(a [6]uint64) bool { return int32(a[0]) == 0 || a[2] == 0 },
		map[int][]uint64{0: {0}, 2: {0, 0x00007fff00000000}},
	},
	"own-priority": {
		func(a [6]uint64) bool { return int32(a[0]) == unix.PRIO_PROCESS && int32(a[1]) == 0 },
		map[int][]uint64{0: {unix.PRIO_PROCESS, unix.PRIO_PGRP, unix.PRIO_USER}, 1: {0}},
	},
	"own-io": {
		func(a [6]uint64) bool { return int32(a[0]) == 1 && int32(a[1]) == 0 }, // IOPRIO_WHO_PROCESS
		map[int][]uint64{0: {1, 2, 3}, 1: {0}},
	},
	"holder": {
		func(a [6]uint64) bool { return a[5] == testKey },
		map[int][]uint64{5: nearKeys},
	},
	"own-ioctl": {
		func(a [6]uint64) bool {
			command := uint32(a[1])
			terminals := command>>8&0xff == 'T' && command != unix.TIOCSTI && command != unix.TIOCLINUX
			return terminals || a[5] == testKey || slices.Contains([]uint32{0x40049409, 0x80086601}, command)
		},
		map[int][]uint64{1: {unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSPTLCK, 0x40049409, 0x80086601, 0x40086602}, 5: nearKeys},
	},
	"no-watching": {
		func(a [6]uint64) bool { return !slices.Contains([]uint32{1024, 1026, 1036, 1040}, uint32(a[1])) },
		map[int][]uint64{1: {1024, 1026, 1036, 1040}},
	},
	"no-holding": {
		func(a [6]uint64) bool { return !slices.Contains([]uint32{1024, 1040}, uint32(a[1])) },
		map[int][]uint64{1: {1024, 1026, 1036, 1040}},
	},
	"no-whiteout-1": {
		func(a [6]uint64) bool { return !whiteout(a[1], a[2]) },
		map[int][]uint64{1: {0o20000, 0o20644, 0o60644, 0o10644}, 2: {0, 0x103}},
	},
	"no-whiteout-2": {
		func(a [6]uint64) bool { return !whiteout(a[2], a[3]) },
		map[int][]uint64{2: {0o20000, 0o20644, 0o60644, 0o10644}, 3: {0, 0x103}},
	},
	"no-whiteout-behind": {
		func(a [6]uint64) bool { return a[4]&4 == 0 }, // RENAME_WHITEOUT
		map[int][]uint64{4: {0, 1, 2, 4, 5}},
	},
	"no-set-id-1": {
		func(a [6]uint64) bool { return uint16(a[1])&0o6000 == 0 },
		map[int][]uint64{1: {0o644, 0o4755, 0o2755, 0o6000}},
	},
	"no-set-id-2": {
		func(a [6]uint64) bool { return uint16(a[2])&0o6000 == 0 },
		map[int][]uint64{2: {0o644, 0o4755, 0o2755, 0o6000}},
	},
	"no-set-id-open": {
		func(a [6]uint64) bool { return !makes(a[1]) || uint16(a[2])&0o6000 == 0 },
		map[int][]uint64{1: {unix.O_CREAT | unix.O_WRONLY, unix.O_TMPFILE, unix.O_DIRECTORY}, 2: {0o644, 0o4755, 0o2755}},
	},
	"no-set-id-openat": {
		func(a [6]uint64) bool { return !makes(a[2]) || uint16(a[3])&0o6000 == 0 },
		map[int][]uint64{2: {unix.O_CREAT | unix.O_WRONLY, unix.O_TMPFILE, unix.O_DIRECTORY}, 3: {0o644, 0o4755, 0o2755}},
	},
}

// whiteout reports whether a node is a character device with the number 0.
func whiteout(mode, number uint64) bool { return mode&0o170000 == 0o20000 && uint32(number) == 0 }

// makes reports whether a file is made with these flags: O_CREAT, or the bit of
// O_TMPFILE that is not O_DIRECTORY.
func makes(flags uint64) bool { return flags&0o100 != 0 || flags&0o20000000 != 0 }

// around returns values near others: one less, one more, every single bit inverted,
// the high half set; and in any case none and all bits.
func around(values ...uint64) []uint64 {
	near := []uint64{0, ^uint64(0)}
	for _, v := range values {
		near = append(near, v, v-1, v+1, v|0xffffffff<<32)
		for bit := range 64 {
			near = append(near, v^1<<bit)
		}
	}
	slices.Sort(near)
	return slices.Compact(near)
}
