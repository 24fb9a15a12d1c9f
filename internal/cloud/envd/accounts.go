//go:build linux

package envd

import (
	"bufio"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// account returns one that was added to the sandbox, as packages and builds of templates
// do; nil if there is none of that name. It is looked for each time: nobody tells when it
// changes.
func account(name, passwd, group string) *User {
	var user *User
	eachLine(passwd, func(fields []string) bool {
		if len(fields) < 7 || fields[0] != name {
			return true
		}
		uid, ok := id(fields[2])
		gid, valid := id(fields[3])
		if ok && valid && filepath.IsAbs(fields[5]) {
			user = &User{Name: name, UID: uid, GID: gid, Home: filepath.Clean(fields[5]), Shell: fields[6]}
		}
		return false
	})
	if user == nil {
		return nil
	}
	user.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: groupsOf(name, user.GID, group)}
	return user
}

// maxGroups bounds the groups of an account.
const maxGroups = 64

func groupsOf(name string, own uint32, file string) []uint32 {
	groups := []uint32{own}
	eachLine(file, func(fields []string) bool {
		if len(fields) < 4 || !slices.Contains(strings.Split(fields[3], ","), name) {
			return true
		}
		if gid, ok := id(fields[2]); ok && !slices.Contains(groups, gid) {
			groups = append(groups, gid)
		}
		return len(groups) < maxGroups
	})
	return groups
}

func id(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1 // which means none
}

// maxAccounts bounds what is read of a file with accounts, which the sandbox can write.
const maxAccounts = 1 << 20

// eachLine calls visit with the fields of each line until it returns false.
func eachLine(file string, visit func(fields []string) bool) {
	f, err := openRegular(file)
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxAccounts)); lines.Scan(); {
		if !visit(strings.Split(lines.Text(), ":")) {
			return
		}
	}
}
