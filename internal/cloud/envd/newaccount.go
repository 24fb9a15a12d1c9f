//go:build linux

package envd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/treecopy"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// accountName matches the names of accounts that builds may add.
var accountName = lazyregexp.New(`^[a-z_][a-z0-9_-]{0,31}$`)

// firstID is the lowest id of an account that a build adds.
const firstID = 1001

// account answers with the account of a name, and creates the account if it does not exist. If
// the request asks for sudo, the account may become root without a password.
func (s *Server) account(_ *http.Request, query url.Values) (any, error) {
	name := query.Get("name")
	if !accountName().MatchString(name) {
		return nil, errors.New("it cannot be the name of an account")
	}
	changed := false
	found := account(name, s.users.passwd.file, s.users.group.file)
	if found == nil {
		var err error
		if found, err = s.addAccount(name); err != nil {
			return nil, err
		}
		changed = true
	}
	if query.Get("sudo") == "true" {
		added, err := addLine(filepath.Join(filepath.Dir(s.users.passwd.file), "sudoers"), name+" ALL=(ALL:ALL) NOPASSWD: ALL", 0o440)
		if err != nil {
			return nil, err
		}
		changed = changed || added
	}
	return struct {
		Changed bool   `json:"changed"`
		Home    string `json:"home"`
	}{changed, found.Home}, nil
}

// addAccount creates an account that has its own group and home.
func (s *Server) addAccount(name string) (*User, error) {
	var taken []string
	shell := "/bin/sh"
	for _, file := range []string{s.users.passwd.file, s.users.group.file} {
		eachLine(file, func(fields []string) bool {
			if len(fields) >= 3 {
				taken = append(taken, fields[2])
			}
			return true
		})
	}
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	uid := uint32(firstID)
	for slices.Contains(taken, fmt.Sprint(uid)) {
		uid++
	}
	gid := uid
	if group, ok := groupID(name, s.users.group.file); ok {
		gid = group
	} else if _, err := addLine(s.users.group.file, fmt.Sprintf("%s:x:%d:", name, gid), 0o644); err != nil {
		return nil, err
	}
	home := filepath.Join(s.homes, name)
	if _, err := addLine(s.users.passwd.file, fmt.Sprintf("%s:x:%d:%d::%s:%s", name, uid, gid, home, shell), 0o644); err != nil {
		return nil, err
	}
	shadow := filepath.Join(filepath.Dir(s.users.passwd.file), "shadow")
	if _, err := os.Stat(shadow); err == nil {
		if _, err := addLine(shadow, name+":!:19000:0:99999:7:::", 0o640); err != nil {
			return nil, err
		}
	}
	if _, err := treecopy.MakeDirs(home, treecopy.Owner{UID: uid, GID: gid}); err != nil {
		return nil, err
	}
	return account(name, s.users.passwd.file, s.users.group.file), nil
}

// addLine appends a line to a file. If the file already has the line, addLine needs no
// permission to write.
func addLine(file, line string, mode os.FileMode) (added bool, err error) {
	text, err := head(file, maxAccounts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.Contains(strings.Split(string(text), "\n"), line) {
		return false, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, mode)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	_, err = io.WriteString(f, line+"\n")
	return err == nil, err
}

// head returns the first n bytes of a file, or the whole file if it is shorter.
func head(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}
