package mounts

import (
	"strings"
	"testing"
)

// TestCheckTarget checks the paths at which clients, and the user who starts the cloud, can mount a
// directory.
func TestCheckTarget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for target, want := range map[string]string{
		"": "must be absolute", "x": "must be absolute", "/x/": "must be absolute", "/x/../etc": "must be absolute", "/x\x00": "must be absolute", "/" + strings.Repeat("x", maxTarget): "must be absolute",
		"/": "would not start", "/etc": "would not start", "/usr": "would not start", "/usr/bin": "would not start", "/lib64": "would not start", "/etc/passwd": "would not start", "/etc/sudoers.d": "would not start",
		"/proc": "its own", "/proc/self": "its own", "/dev/shm": "its own", "/run": "its own", "/var/run/x": "its own", "/sys/fs": "its own",
		"/.e2bctl": "its own", "/.e2bctl/x": "its own",
		"/" + strings.Repeat("x", maxTarget-1): "",
		"/data":                                "", "/etc/nginx": "", "/usr/local/lib": "", "/tmp": "", "/home/user": "", "/.e2bctl2": "", "/procs": "",
	} {
		want = strings.Replace(want, "its own", "is the sandbox's own", 1)
		if err := CheckTarget(target); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got error %v, want %q", target, err, want)
		}
		s, err := Open(Options{All: []Mount{{Dir: dir, Path: target}}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("of every sandbox, %.40q: got error %v, want %q", target, err, want)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
