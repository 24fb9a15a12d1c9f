//go:build linux

package envd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// Accounts that were added to a sandbox are found in its files, among any other lines.
func TestAccounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	for file, text := range map[string]string{
		passwd: "root:x:0:0:root:/root:/bin/bash\nalice:x:1001:1002::/home//alice:/bin/sh\nbad:x:a:1::/:/\nnone:x:4294967295:1::/:/\nrelative:x:5:5::home:/\nbadgroup:x:5:b::/:/\nsix:x:7:7::/\nshort:x:1\n\n:::\n" + strings.Repeat("x", 2<<20) + "\nlate:x:6:6::/:/\n",
		group:  "alice:x:1002:\ndocker:x:27:bob,alice\nshort:x:28\nodd:x:x:alice\nagain:x:27:alice\n",
	} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want := &User{Name: "alice", UID: 1001, GID: 1002, Home: "/home/alice", Shell: "/bin/sh", Credential: &syscall.Credential{Uid: 1001, Gid: 1002, Groups: []uint32{1002, 27}}}
	if diff := cmp.Diff(want, account("alice", passwd, group)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"", "bad", "none", "relative", "badgroup", "six", "short", "late", "nobody", "alice:x"} {
		if got := account(name, passwd, group); got != nil {
			t.Errorf("%q: got %+v, want none", name, got)
		}
	}
	if got := account("alice", passwd, filepath.Join(dir, "gone")); got == nil || len(got.Credential.Groups) != 1 {
		t.Errorf("without groups: got %+v, want its own", got)
	}
	many := filepath.Join(dir, "groups")
	var lines strings.Builder
	for n := range 2 * maxGroups {
		fmt.Fprintf(&lines, "g%d:x:%d:alice\n", n, 2000+n)
	}
	must.Do(t, os.WriteFile(many, []byte(lines.String()), 0o600))
	if got := account("alice", passwd, many); got == nil || len(got.Credential.Groups) != maxGroups {
		t.Errorf("with too many groups: got %+v, want the first %d", got, maxGroups)
	}
	if got := account("alice", dir, group); got != nil {
		t.Errorf("from a directory: got %+v, want none", got)
	}
}

// The user of an image is a name or an id, and may have a group.
func TestNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	for file, text := range map[string]string{
		passwd: "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\napp:x:500:600::/srv:/bin/sh\n2000:x:501:601::/number:/bin/sh\nfar:x:100000:1::/:/\n",
		group:  "tiny:x\nstaff:x:700:app\nbad:x:x:\n",
	} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	list := []User{{Name: "root", Home: "/root"}, {Name: "user", UID: 1000, GID: 1000, Home: "/home/user", Credential: &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{27}}}}
	credential := func(uid, gid uint32, groups ...uint32) *syscall.Credential {
		return &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}
	}
	many := &users{list: list, passwd: idNames{file: passwd}, group: idNames{file: group}}
	for name, want := range map[string]*User{
		"root": &list[0], "0": &list[0], "user": &list[1], "1000": &list[1],
		"user:user":  &list[1], // no file has the group
		"app":        {Name: "app", UID: 500, GID: 600, Home: "/srv", Shell: "/bin/sh", Credential: credential(500, 600, 600, 700)},
		"500":        {Name: "app", UID: 500, GID: 600, Home: "/srv", Shell: "/bin/sh", Credential: credential(500, 600, 600, 700)},
		"app:staff":  {Name: "app", UID: 500, GID: 700, Home: "/srv", Shell: "/bin/sh", Credential: credential(500, 700, 700)},
		"1000:1001":  {Name: "user", UID: 1000, GID: 1001, Home: "/home/user", Credential: credential(1000, 1001, 1001)},
		"root:staff": {Name: "root", GID: 700, Home: "/root", Credential: credential(0, 700, 700)},
		"2000":       {Name: "2000", UID: 501, GID: 601, Home: "/number", Shell: "/bin/sh", Credential: credential(501, 601, 601)},
		"3000":       {Name: "3000", UID: 3000, Home: "/", Shell: "/bin/sh", Credential: credential(3000, 0, 0)},
		"65535:1":    {Name: "65535", UID: 65535, GID: 1, Home: "/", Shell: "/bin/sh", Credential: credential(65535, 1, 1)},
	} {
		got, err := many.named(name)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for name, want := range map[string]bool{"": false, "who": false, "app:": false, "app:who": false, "app:tiny": false, "app:bad": false, ":staff": false, "-1": false, "4294967295": false, "65536": true, "0:65536": true, "far": true} {
		if got, err := many.named(name); err == nil || errors.Is(err, ErrNoID) != want {
			t.Errorf("%q: got %+v, %v, want an error, about an id: %t", name, got, err, want)
		}
	}
	node := filepath.Join(dir, "passwd of an image")
	must.Do(t, os.WriteFile(node, []byte("node:x:1000:100::/home/node:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"), 0o600))
	ofImage := &users{list: list, passwd: idNames{file: node}, group: idNames{file: group}}
	for name, want := range map[string]uint32{"1000": 100, "user": 1000} {
		if got, err := ofImage.named(name); err != nil || got.Credential.Gid != want {
			t.Errorf("%s, whose id an account of the image has: got %+v, %v, want the group %d", name, got, err, want)
		}
	}
	list[1] = User{Name: "user", Home: "/home/user"}
	one := &users{list: list, passwd: idNames{file: passwd}, group: idNames{file: group}}
	for _, name := range []string{"root", "user", "0", "0:0", "root:0"} {
		if got, err := one.named(name); err != nil || got.UID != 0 || got.Credential != nil {
			t.Errorf("%s with one id: got %+v, %v, want that id", name, got, err)
		}
	}
	must.Do(t, os.WriteFile(node, []byte("toor:x:0:0::/:/bin/sh\nroot:x:0:0::/root:/bin/sh\n"), 0o600))
	one.passwd.file = node
	if got, err := one.named("0"); err != nil || got.Name != "root" {
		t.Errorf("0 with one id, and another account of it: got %+v, %v, want root", got, err)
	}
	one.passwd.file = passwd
	for name, want := range map[string]bool{"app": true, "1000": true, "root:staff": true, "5:0": true, "0:5": true, "who": false} {
		if got, err := one.named(name); err == nil || errors.Is(err, ErrNoID) != want {
			t.Errorf("%s with one id: got %+v, %v, want an error, about an id: %t", name, got, err, want)
		}
	}
}
