//go:build linux

package runtime

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEscape has code in a sandbox try what it must not be able to do, as both
// of its users. Every command is written so that success would print ESCAPED,
// and so that it also prints "tried": a command that did not run proves nothing.
func TestEscape(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := newSandbox(t, r, SandboxOptions{})

	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("ESCAPED"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port

	tests := []struct{ name, command string }{
		{"host file", "cat " + secret},
		{"host file through the agent's root", "cat /proc/1/root" + secret},
		{"host directories", "for d in /root/.ssh /var/lib/systemd /boot /sys/kernel /etc/apt/auth.conf.d; do ls $d >/dev/null 2>&1 && echo ESCAPED $d; done"},
		{"host process", fmt.Sprintf("kill -0 %d && echo ESCAPED; kill -0 %d && echo ESCAPED", r.keeper.cmd.Process.Pid, agentPID(r)+1<<16)},
		{"host processes", "test $(ls /proc | grep -c '^[0-9]') -lt 10 || echo ESCAPED"},
		{"host loopback", fmt.Sprintf("bash -c 'exec 5<>/dev/tcp/127.0.0.1/%d' && echo ESCAPED", port)},
		{"host interfaces", "grep -v -e lo: -e face -e Inter /proc/net/dev && echo ESCAPED"},
		{"core_pattern", "echo x > /proc/sys/kernel/core_pattern && echo ESCAPED"},
		{"sysrq", "echo h > /proc/sysrq-trigger && grep -q . /proc/sysrq-trigger && echo ESCAPED"},
		{"agent's environment", "cat /proc/1/environ && echo ESCAPED"},
		{"agent's memory", "head -c 1 /proc/1/mem && echo ESCAPED"},
		{"agent's descriptors", "for f in /proc/1/fd/*; do readlink $f; done | grep . && echo ESCAPED; cat /proc/1/fd/2 && echo ESCAPED"},
		{"agent's executable", "echo x >> /proc/1/exe && echo ESCAPED; cp /bin/true /proc/1/exe && echo ESCAPED"},
		{"agent's name", "find / -xdev -name 'e2bctl-agent*' -o -xdev -name agent -type f -size +1M | grep . && echo ESCAPED"},
		{"killing the agent", "kill -9 1; ls / >/dev/null || echo ESCAPED"},
		{"nested user namespace", "unshare -U true && echo ESCAPED; unshare -r true && echo ESCAPED"},
		{"other namespaces", "for n in -m -n -p -u -i -C; do unshare $n true && echo ESCAPED $n; done"},
		{"joining a namespace", "nsenter -t 1 -m true && echo ESCAPED"},
		{"a mount", "mount -t tmpfs none /mnt && echo ESCAPED; mount -o remount,rw /proc/sys && echo ESCAPED; umount /proc/sys && echo ESCAPED"},
		{"a device", "mknod /tmp/vda b 254 0 && cat /tmp/vda && echo ESCAPED; mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem && echo ESCAPED"},
		{"the old root", "ls /proc/1/root/lower /lower /proc/self/root/../lower && echo ESCAPED"},
		{"chroot and up", "mkdir -p /tmp/j && chroot /tmp/j /bin/sh -c 'cd ../../..; cat ." + secret + "'"},
		{"a clock", "date -s 2001-01-01 && echo ESCAPED"},
		{"kernel log", "dmesg && echo ESCAPED"},
		{"host limits of the sandbox", "ls /sys/fs/cgroup/memory && echo ESCAPED"},
	}
	for _, user := range []string{"root", "user"} {
		for _, tt := range tests {
			t.Run(user+"/"+tt.name, func(t *testing.T) {
				got := call(t, s, "/run", testRequest{Command: "(" + tt.command + "); echo tried", User: user})
				if strings.Contains(got.Output, "ESCAPED") || !strings.HasSuffix(got.Output, "tried\n") {
					t.Errorf("%s\n%+v", tt.command, got)
				}
			})
		}
	}
}

// TestUserMap: no id inside a sandbox is the host's root.
func TestUserMap(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	newSandbox(t, r, SandboxOptions{})
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", agentPID(r)))
	if err != nil {
		t.Fatal(err)
	}
	ranges := parseIDMap(data)
	if len(ranges) == 0 {
		t.Fatalf("no map in %q", data)
	}
	for _, m := range ranges {
		if m.outside == 0 {
			t.Errorf("host uid 0 is %d inside: %s", m.inside, data)
		}
		if m.count != uint64(r.Report().IDs) {
			t.Errorf("%d ids are mapped, the report says %d", m.count, r.Report().IDs)
		}
	}
}
