//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestAccountsOfAnImage checks which accounts an image gets, that accounts of its own stay, and that
// no link of the image is followed to this machine.
func TestAccountsOfAnImage(t *testing.T) { //nolint:paralleltest // it changes its directory
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const read, secret = "-rw-r--r-- ", "-rw------- "
	const rootLine, userLine, oneLine = "root:x:0:0::/root:/bin/sh", "user:x:1000:1000::/home/user:/bin/sh", "user:x:0:0::/home/user:/bin/sh"
	const shadows = secret + "root::19000:0:99999:7:::\nuser::19000:0:99999:7:::"
	outside := t.TempDir() + "/passwd"
	must.Do(t, os.WriteFile(outside, []byte("user:x:1:1::/:/bin/sh\n"), 0o644))
	for name, tt := range map[string]struct {
		files  map[string]string
		ranged bool
		want   map[string]string // of /etc
		notes  []string
	}{
		"none": {map[string]string{"etc/": ""}, true, map[string]string{"passwd": read + rootLine + "\n" + userLine, "group": read + "root:x:0:\nuser:x:1000:", "shadow": shadows}, nil},
		"none and one id": {map[string]string{"etc/": ""}, false,
			map[string]string{"passwd": read + oneLine + "\n" + rootLine, "group": read + "user:x:0:\nroot:x:0:", "shadow": secret + "user::19000:0:99999:7:::\nroot::19000:0:99999:7:::"}, nil},
		"root without a newline, and bash": {map[string]string{"etc/passwd": "root:x:0:0::/:/bin/ash", "etc/group": "users:x:1:\nuser:x:5:\n", "bin/bash": ""}, true,
			map[string]string{"passwd": read + "root:x:0:0::/:/bin/ash\nuser:x:1000:1000::/home/user:/bin/bash", "group": read + "users:x:1:\nuser:x:5:", "shadow": secret + "user::19000:0:99999:7:::"}, nil},
		"both": {map[string]string{"etc/passwd": "user:x:7:7::/:/x\nroot:x:0:0::/:/x"}, true, map[string]string{"passwd": read + "user:x:7:7::/:/x\nroot:x:0:0::/:/x"}, nil},
		"a link to nothing": {map[string]string{"etc/passwd": "->" + outside}, true,
			map[string]string{"passwd": read + rootLine + "\n" + userLine, "group": read + "root:x:0:\nuser:x:1000:", "shadow": shadows}, nil},
		"a directory": {map[string]string{"etc/passwd/": ""}, true,
			map[string]string{"passwd": read + rootLine + "\n" + userLine, "passwd.saved1": "drwxr-xr-x", "group": read + "root:x:0:\nuser:x:1000:", "shadow": shadows}, []string{"/etc/passwd is now /etc/passwd.saved1"}},
		"another user only": {map[string]string{"etc/passwd": "username:x:7:7::/:/x\n"}, true,
			map[string]string{"passwd": read + "username:x:7:7::/:/x\n" + rootLine + "\n" + userLine, "group": read + "root:x:0:\nuser:x:1000:", "shadow": shadows}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inStage(t, tt.files)
			b := &built{}
			added, err := b.addAccounts(tt.ranged)
			if err != nil || added != (name != "both") {
				t.Errorf("added accounts: %v, and got error %v", added, err)
			}
			if diff := cmp.Diff(tt.want, shown(t, "root/etc")) + cmp.Diff(tt.notes, b.notes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !added {
				return
			}
			id := map[bool]int{true: protocol.UserID}[tt.ranged]
			if got, want := ownerOf(t, "root"+guest.UserHome), fmt.Sprintf("%d:%d", id, id); got != want || shown(t, "root/home")["user"] != "drwxr-xr-x" {
				t.Errorf("the home of user belongs to %s with %s, want %s", got, shown(t, "root/home")["user"], want)
			}
			if ofRoot := shown(t, "root")["root"]; (ofRoot != "drwx------") != strings.HasPrefix(name, "root") {
				t.Errorf("the home of root is %q", ofRoot)
			}
		})
	}
}

// TestMendedImage checks what else an image gets whose accounts were missing.
func TestMendedImage(t *testing.T) { //nolint:paralleltest // it changes its directory
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for _, ranged := range []bool{true, false} {
		inStage(t, map[string]string{
			runDirectory[1:] + "/left": "x", guest.AuthorityDir[1:] + "/left": "x", "etc/sudoers.d/e2bctl": "of the image", "etc/apt/apt.conf.d/": "", "tmp/": "", "run/": "",
		})
		must.Do(t, errors.Join(os.Chmod("root", 0o700), os.Chmod("root/etc", 0o700), os.Chmod("root/tmp", 0o755|os.ModeSetgid)))
		must.Do(t, (&built{}).mendImage(ranged))
		got := shown(t, "root")
		want := map[string]string{"etc": "drwxr-xr-x", "run": "drwxr-xr-x", "tmp": "dgtrwxrwxrwx", "etc/sudoers.d/e2bctl": "-r--r----- user ALL=(ALL:ALL) NOPASSWD: ALL", "etc/apt/apt.conf.d/50sandbox": ""}
		if !ranged {
			want["etc/apt/apt.conf.d/50sandbox"] = strings.TrimSpace("-rw-r--r-- " + aptConf)
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("ranged %v: %s is %q, want %q", ranged, name, got[name], text)
			}
		}
		info, err := os.Stat("root")
		must.Do(t, err)
		if exists("root"+runDirectory) || exists("root"+guest.AuthorityDir) || info.Mode().Perm() != 0o755 {
			t.Errorf("ranged %v: directories of envd are left, or / has the mode %v", ranged, info.Mode())
		}
	}
	inStage(t, map[string]string{"etc/passwd": "root:x:0:0::/:/x\nuser:x:7:7::/:/x\n", "etc/sudoers.d/": "", "tmp/": ""})
	must.Do(t, (&built{}).mendImage(true))
	if got := shown(t, "root"); got["etc/sudoers.d/e2bctl"] != "" || got["tmp"] != "drwxr-xr-x" {
		t.Errorf("an image with both accounts was changed: %v", got)
	}
}

// TestFilesOfAnImage checks which files of an image are read and replaced.
func TestFilesOfAnImage(t *testing.T) { //nolint:paralleltest // it changes its directory
	inStage(t, map[string]string{"etc/a": "text", "etc/link": "->/etc/a", "etc/self": "->self", "etc/gone": "->/none", "etc/directory/": "", "etc/conf/a": "->/etc/a", "etc/full/a/": ""})
	must.Do(t, errors.Join(os.WriteFile("root/largest", nil, 0o644), os.Truncate("root/largest", maxAccounts), os.WriteFile("root/larger", nil, 0o644), os.Truncate("root/larger", maxAccounts+1),
		unix.Mkfifo("root/pipe", 0o644)))
	for path, want := range map[string]string{"/etc/a": "text", "/etc/link": "text", "/etc/self": "", "/etc/gone": "", "/etc/a/b": "", "/etc/directory": "", "/none": "", "/pipe": ""} {
		if got, err := readInRoot(path); err != nil || got != want {
			t.Errorf("%s: got %q and error %v, want %q", path, got, err, want)
		}
	}
	if got, err := readInRoot("/largest"); err != nil || len(got) != maxAccounts {
		t.Errorf("the largest file: got %d bytes and error %v", len(got), err)
	}
	if _, err := readInRoot("/larger"); err == nil {
		t.Error("a file that is too large is no error")
	}
	for dir, want := range map[string]struct {
		fails bool
		text  string
	}{"/etc/conf": {false, "-r--r----- new"}, "/none": {false, ""}, "/etc/a": {false, ""}, "/etc/full": {true, "drwxr-xr-x"}, "/etc/directory": {false, "-r--r----- new"}} {
		err := replaceBeside(dir, "a", "new", 0o440)
		if got := shown(t, "root")[dir[1:]+"/a"]; (err != nil) != want.fails || got != want.text {
			t.Errorf("%s: got error %v and the file %q, want %q", dir, err, got, want.text)
		}
	}
	if got := shown(t, "root")["etc/a"]; got != "-rw-r--r-- text" {
		t.Errorf("the target of a link became %q", got)
	}
}
