//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestUsersOfAContainer checks the accounts that envd offers in a container.
func TestUsersOfAContainer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		place containedPlace
		want  []string
	}{
		"root":                          {containedPlace{name: "root", asked: "app"}, []string{"root", "user"}},
		"without a name":                {containedPlace{uid: 7}, []string{"root", "user"}},
		"an account":                    {containedPlace{uid: 7, name: "app"}, []string{"root", "user", "app"}},
		"another name of an account":    {containedPlace{uid: 7, name: "app", asked: "7"}, []string{"root", "user", "app", "7"}},
		"the same name":                 {containedPlace{uid: 7, name: "app", asked: "app"}, []string{"root", "user", "app"}},
		"user itself":                   {containedPlace{uid: 7, name: "user", asked: "user"}, []string{"root", "user"}},
		"root with a name of its own":   {containedPlace{name: "admin"}, []string{"root", "user", "admin"}},
		"requested, and without a name": {containedPlace{uid: 7, asked: "7"}, []string{"root", "user", "7"}},
	} {
		tt.place.gid, tt.place.home, tt.place.root, tt.place.shell = 8, "/home/app", "/root", "/bin/ash"
		var names []string
		for _, u := range tt.place.users() {
			home := "/home/app"
			if u.Name == "root" {
				home = "/root"
			}
			if u.UID != tt.place.uid || u.GID != 8 || u.Home != home || u.Shell != "/bin/ash" {
				t.Errorf("%s: got the account %+v", name, u)
			}
			names = append(names, u.Name)
		}
		if diff := cmp.Diff(tt.want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if all := users(false); all[0].Credential != nil || all[1].Credential != nil || all[1].UID != 0 || all[1].Home != guest.UserHome {
		t.Errorf("with one id: got %+v", all)
	}
}

// TestConfigOfAContainer checks what of the configuration is the server's machine's, and is replaced by
// what the image has.
func TestConfigOfAContainer(t *testing.T) { //nolint:paralleltest // it changes the environment and the directory
	bin, home := t.TempDir(), t.TempDir()
	must.Do(t, errors.Join(os.WriteFile(bin+"/python", nil, 0o755), os.WriteFile(bin+"/tool", nil, 0o644)))
	for name, tt := range map[string]struct {
		given guest.Config
		dir   string
		want  guest.Config
	}{
		"of an image": {guest.Config{Image: "i", Envs: map[string]string{"PATH": bin, "OF_IMAGE": "own"}, System: map[string]string{"X": "y"}, Python: []string{"/machine"}}, home,
			guest.Config{Image: "i", Contained: true, Envs: map[string]string{"PATH": bin, "OF_IMAGE": "own", "ALSO": "1"}, Path: bin, Python: []string{bin + "/python"}, Workdir: home}},
		"of a template": {guest.Config{Envs: map[string]string{"PATH": bin}, Workdir: guest.UserWorkdir, User: "app"}, home,
			guest.Config{Contained: true, Envs: map[string]string{"PATH": bin, "OF_IMAGE": "image", "ALSO": "1"}, Path: "/of/image", Python: []string{"python3"}, Workdir: home, User: "app"}},
		"with a directory": {guest.Config{Workdir: "/own"}, home,
			guest.Config{Contained: true, Envs: map[string]string{"OF_IMAGE": "image", "ALSO": "1"}, Path: "/of/image", Python: []string{"python3"}, Workdir: "/own"}},
		"at the root": {guest.Config{}, "/",
			guest.Config{Contained: true, Envs: map[string]string{"OF_IMAGE": "image", "ALSO": "1"}, Path: "/of/image", Python: []string{"python3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range os.Environ() {
				key, value, _ := strings.Cut(v, "=")
				t.Setenv(key, value) // restores it
				must.Do(t, os.Unsetenv(key))
			}
			for key, value := range map[string]string{"PATH": "/of/image", "HOME": "/h", "HOSTNAME": "n", "OF_IMAGE": "image", "ALSO": "1"} {
				t.Setenv(key, value)
			}
			t.Chdir(tt.dir)
			must.Do(t, os.Unsetenv("PWD"))
			raw, err := json.Marshal(tt.given)
			must.Do(t, err)
			place := &containedPlace{path: "/of/image"}
			raw, err = place.config(raw)
			must.Do(t, err)
			var got guest.Config
			must.Do(t, json.Unmarshal(raw, &got))
			if diff := cmp.Diff(tt.want, got); diff != "" || place.asked != tt.given.User || os.Getenv("PATH") != tt.want.Path {
				t.Errorf("asked for %q, with the PATH %s (-want +got):\n%s", place.asked, os.Getenv("PATH"), diff)
			}
		})
	}
	if _, err := (&containedPlace{}).config(json.RawMessage("[]")); err == nil {
		t.Error("a malformed configuration is no error")
	}
}

// TestFirstWritable checks which directory envd takes.
func TestFirstWritable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(dir+"/file", nil, 0o644))
	for _, tt := range []struct {
		dirs []string
		want string
	}{
		{[]string{dir + "/a/b", dir + "/c"}, dir + "/a/b"}, {[]string{"", "relative", "/", dir + "/file", dir + "/file/a", dir + "/c"}, dir + "/c"},
		{[]string{dir + "/file"}, ""}, {[]string{"/proc/none"}, ""},
	} {
		got, err := firstWritable(tt.dirs...)
		if got != tt.want || (err == nil) != (tt.want != "") || err == nil && !exists(got) {
			t.Errorf("%q: got %q and error %v, want %q", tt.dirs, got, err, tt.want)
		}
	}
	if name, home := accountOf(0); name != "root" || home == "" {
		t.Errorf("the id 0 is %q with the home %q, want root", name, home)
	}
	if name, home := accountOf(1<<32 - 2); name != "" || home != "" {
		t.Errorf("an id without an account is %q with the home %q", name, home)
	}
	must.Do(t, os.MkdirAll(dir+"/removed/a", 0o755))
	must.Do(t, removeNamed(strings.NewReader(dir+"/removed\x00"+dir+"/none\x00\x00"+dir+"/file")))
	for _, name := range []string{"/removed", "/file"} {
		if exists(dir + name) {
			t.Errorf("%s is left", name)
		}
	}
	if err := removeAll([]string{"/proc/version"}); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EROFS) {
		t.Errorf("a file that cannot be removed: got error %v", err)
	}
}
