//go:build linux

package envd

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Accounts that were added to a sandbox are found in its files, whatever else is in them.
func TestAccounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	for file, text := range map[string]string{
		passwd: "root:x:0:0:root:/root:/bin/bash\nalice:x:1001:1002::/home//alice:/bin/sh\nbad:x:a:1::/:/\nnone:x:4294967295:1::/:/\nrelative:x:5:5::home:/\nshort:x:1\n\n:::\n" + strings.Repeat("x", 2<<20) + "\nlate:x:6:6::/:/\n",
		group:  "alice:x:1002:\ndocker:x:27:bob,alice\nodd:x:x:alice\nagain:x:27:alice\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := &User{Name: "alice", UID: 1001, GID: 1002, Home: "/home/alice", Shell: "/bin/sh", Credential: &syscall.Credential{Uid: 1001, Gid: 1002, Groups: []uint32{1002, 27}}}
	if diff := cmp.Diff(want, account("alice", passwd, group)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"", "bad", "none", "relative", "short", "late", "nobody", "alice:x"} {
		if got := account(name, passwd, group); got != nil {
			t.Errorf("%q: got %+v, want none", name, got)
		}
	}
	if got := account("alice", passwd, filepath.Join(dir, "gone")); got == nil || len(got.Credential.Groups) != 1 {
		t.Errorf("without groups: got %+v, want its own", got)
	}
	if got := account("alice", dir, group); got != nil {
		t.Errorf("from a directory: got %+v, want none", got)
	}
}
