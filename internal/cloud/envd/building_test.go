//go:build linux

package envd

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/treecopy"
)

// An account is made once, with an unused id.
func TestNewAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := serve(t)
	d.server.users.passwd.file, d.server.users.group.file = filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	longest := strings.Repeat("a", 32)
	put(t, filepath.Join(dir, "passwd"), "root:x:0:0::/root:/bin/sh\n"+longest+":x:1001:1001::/long:/bin/sh\nbob:x:1001:1001::"+dir+":/bin/sh")
	put(t, filepath.Join(dir, "group"), "staff:x:1002:\nbob:x:1001:\ncarl:x:77:\n")
	put(t, filepath.Join(dir, "shadow"), "root:*:1::::::\n")
	for _, tt := range []struct{ query, want string }{
		{"name=bob", `{"changed":false,"home":"` + dir + `"}`},
		{"name=bob&sudo=true", `{"changed":true,"home":"` + dir + `"}`},
		{"name=bob&sudo=true", `{"changed":false,"home":"` + dir + `"}`},
		{"name=" + longest, `{"changed":false,"home":"/long"}`},
		{"name=" + longest + "a", `it cannot be the name of an account`},
		{"name=a%3Ab", `it cannot be the name of an account`},
		{"name=", `it cannot be the name of an account`},
	} {
		if _, body := d.do(t, "POST", "/local/account?"+tt.query, ""); !strings.Contains(body, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.query, body, tt.want)
		}
	}
	if got, want := content(t, filepath.Join(dir, "sudoers")), "bob ALL=(ALL:ALL) NOPASSWD: ALL\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if os.Getuid() != 0 { // the rest gives files away
		return
	}
	d.server.homes = filepath.Join(dir, "homes")
	for _, want := range []string{`{"changed":true,"home":"` + dir + `/homes/alice"}`, `{"changed":false,"home":"` + dir + `/homes/alice"}`} {
		if _, body := d.do(t, "POST", "/local/account?name=alice", ""); !strings.Contains(body, want) {
			t.Errorf("got %s, want %s", body, want)
		}
	}
	alice := account("alice", d.server.users.passwd.file, d.server.users.group.file)
	if alice == nil || alice.UID != 1003 || alice.GID != 1003 {
		t.Fatalf("got %+v, want an id that is free", alice)
	}
	if _, body := d.do(t, "POST", "/local/account?name=carl", ""); !strings.Contains(body, `"changed":true`) {
		t.Errorf("got %s, want a new account", body)
	}
	if carl := account("carl", d.server.users.passwd.file, d.server.users.group.file); carl == nil || carl.UID != 1004 || carl.GID != 77 {
		t.Errorf("got %+v, want a free id, and the group of that name", carl)
	}
	if diff := cmp.Diff("staff:x:1002:\nbob:x:1001:\ncarl:x:77:\nalice:x:1003:\n", content(t, filepath.Join(dir, "group"))); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	accounts := "\nalice:x:1003:1003::" + dir + "/homes/alice:" + shell + "\ncarl:x:1004:77::" + dir + "/homes/carl:" + shell + "\n"
	if got := content(t, filepath.Join(dir, "passwd")); !strings.HasSuffix(got, ":/bin/sh"+accounts) {
		t.Errorf("got the accounts %q, want %q at the end", got, accounts)
	}
	if got := owner(t, dir+"/homes/alice") + " " + owner(t, dir+"/homes/carl"); got != "1003:1003 1004:77" {
		t.Errorf("the homes belong to %s", got)
	}
	if got := content(t, filepath.Join(dir, "shadow")); !strings.HasSuffix(got, "\nalice:!:19000:0:99999:7:::\ncarl:!:19000:0:99999:7:::\n") {
		t.Errorf("got %q, want lines without passwords", got)
	}
	d.server.users.list[0].Credential = alice.Credential // there are several ids
	for text, want := range map[string]*treecopy.Owner{
		"": nil, "alice": {UID: 1003, GID: 1003}, "5:5": {UID: 5, GID: 5}, "5:7": {UID: 5, GID: 7}, "alice:staff": {UID: 1003, GID: 1002}, "7:bob": {UID: 7, GID: 1001},
	} {
		if got, err := d.server.ownerNamed(text); !cmp.Equal(got, want) || err != nil {
			t.Errorf("%q: got %+v and error %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"carol", "alice:carol", ":"} {
		if got, err := d.server.ownerNamed(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// TestNewAccountWithoutPasswords checks that an account gets no file of passwords where there is none, and nothing that
// it may do as root unless that is asked for.
func TestNewAccountWithoutPasswords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := serve(t)
	d.server.users.passwd.file, d.server.users.group.file = filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	d.server.homes = dir
	put(t, filepath.Join(dir, "group"), "short:x\n")
	for name, sudo := range map[string]string{"a": "", "b": "&sudo=false", "c": "&sudo=1"} {
		for _, changed := range []bool{true, false} {
			_, body := d.do(t, "POST", "/local/account?name="+name+sudo, "")
			if want := fmt.Sprintf(`"changed":%v`, changed); !strings.Contains(body, want) && os.Getuid() == 0 {
				t.Errorf("%s: got %s, want %s", name, body, want)
			}
		}
	}
	for _, file := range []string{"shadow", "sudoers"} {
		if _, err := os.Lstat(filepath.Join(dir, file)); !os.IsNotExist(err) {
			t.Errorf("%s: got error %v, want no such file", file, err)
		}
	}
}

// If processes have only one id, files can belong to other ids only if the options say so, as
// they do in containers. Each user of the sandbox has a group of the same name.
func TestAnyOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := serve(t)
	users := d.server.users
	users.passwd.file, users.group.file = filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	put(t, users.passwd.file, "app:x:70500:70600::/srv:/bin/sh\n")
	put(t, users.group.file, "staff:x:70700:\n")
	own := users.list[0]
	for allowed, want := range map[bool]map[string]*treecopy.Owner{
		false: {own.Name + ":" + own.Name: {UID: own.UID, GID: own.GID}, "app": nil, "app:staff": nil, own.Name + ":gone": nil, "gone": nil},
		true:  {own.Name + ":" + own.Name: {UID: own.UID, GID: own.GID}, "app": {UID: 70500, GID: 70600}, "app:staff": {UID: 70500, GID: 70700}, own.Name + ":gone": nil, "gone": nil},
	} {
		d.server.anyOwner = allowed
		for text, want := range want {
			if got, err := d.server.ownerNamed(text); !cmp.Equal(got, want) || (err == nil) != (want != nil) {
				t.Errorf("any owner: %v, %q: got %+v and error %v, want %+v", allowed, text, got, err, want)
			}
		}
	}
}

// The routes for builds need the token, as all routes do.
func TestBuildingNeedsToken(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Token = "secret" })
	for _, route := range []string{"POST /local/place", "GET /local/pack?source=/", "POST /local/directory", "POST /local/account"} {
		method, target, _ := strings.Cut(route, " ")
		if res, _ := d.do(t, method, target, ""); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: got %d, want 401", route, res.StatusCode)
		}
	}
}
