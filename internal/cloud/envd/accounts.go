//go:build linux

package envd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// ErrNoID reports that the sandbox does not have the user id or the group id of an account.
var ErrNoID = errors.New("the sandbox does not have such an id")

// account returns an account from the account files of the sandbox. Such an account comes from
// the image, a package, or a build of a template. account returns nil if no account has the
// name. It reads the files each time, because envd is not notified when they change.
func account(name, passwd, group string) *User { return accountWith(0, name, passwd, group) }

// accountWith returns the account in the first line of passwd in which the given field has the
// given text. Fields are counted from 0. The groups of the account come from group. accountWith
// returns nil if there is no such line, or if the line is invalid.
func accountWith(field int, text, passwd, group string) *User {
	var user *User
	eachLine(passwd, func(fields []string) bool {
		if len(fields) < 7 || fields[field] != text {
			return true
		}
		uid, ok := id(fields[2])
		gid, valid := id(fields[3])
		if ok && valid && filepath.IsAbs(fields[5]) {
			user = &User{Name: fields[0], UID: uid, GID: gid, Home: filepath.Clean(fields[5]), Shell: fields[6]}
		}
		return false
	})
	if user == nil {
		return nil
	}
	user.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: groupsOf(user.Name, user.GID, group)}
	return user
}

// AsInFiles returns the account with the user's name from the sandbox's own account files. An image
// may have such an account, with other ids or another home. If there is no such account, AsInFiles
// returns user. If user has no credential, the returned account has no credential either, and has
// the ids of user.
func AsInFiles(user User) User {
	found := account(user.Name, passwdFile, groupFile)
	if found == nil {
		return user
	}
	if user.Credential == nil { // processes keep the id of envd
		found.UID, found.GID, found.Credential = user.UID, user.GID, nil
	}
	return *found
}

// find returns the account whose name or id is name. It returns nil if there is no such account.
// The name or id of a group may follow after a colon. In this case, the group is the only group of
// the account.
func (u *users) find(name string) *User {
	who, group, grouped := strings.Cut(name, ":")
	user := account(who, u.passwd.file, u.group.file)
	if i := u.index(who); i >= 0 {
		user = &u.list[i]
		// In an image, an earlier account may have the same id and another group.
		if first := accountWith(2, who, u.passwd.file, u.group.file); first != nil && first.Name != user.Name && user.Credential != nil {
			user = first
		}
	}
	if uid, ok := id(who); ok && user == nil {
		if user = accountWith(2, who, u.passwd.file, u.group.file); user == nil {
			user = &User{Name: who, UID: uid, Home: "/", Shell: guest.PlainShell, Credential: &syscall.Credential{Uid: uid, Groups: []uint32{0}}}
		}
	}
	if user == nil || !grouped {
		return user
	}
	gid, ok := groupID(group, u.group.file)
	if !ok && group == user.Name && u.index(group) >= 0 { // the user's own group, which the file may lack
		return user
	}
	if !ok {
		return nil
	}
	with := *user
	with.GID, with.Credential = gid, &syscall.Credential{Uid: user.UID, Gid: gid, Groups: []uint32{gid}}
	return &with
}

// index returns the index of the sandbox's own user with this name or id. It returns -1 if
// there is none.
func (u *users) index(who string) int {
	return slices.IndexFunc(u.list, func(user User) bool {
		return user.Name == who || strconv.FormatUint(uint64(user.UID), 10) == who
	})
}

// usable returns user, or an error if the sandbox does not have the ids of user.
func (u *users) usable(user *User) (*User, error) {
	if u.anyUser {
		return user, nil
	}
	root := &u.list[0]
	if slices.ContainsFunc(u.list, func(user User) bool { return user.Credential != nil }) {
		if max(user.UID, user.GID) < guest.IDs {
			return user, nil
		}
		return nil, fmt.Errorf("user: %s is %d:%d: %w: its ids are less than %d", bounded(user.Name), user.UID, user.GID, ErrNoID, guest.IDs)
	}
	if user.UID == root.UID && user.GID == root.GID {
		own := *user
		own.Credential = nil
		return &own, nil
	}
	return nil, fmt.Errorf("user: %s is %d:%d: %w: %s", bounded(user.Name), user.UID, user.GID, ErrNoID, u.single)
}

// groupID returns the id of a group. name is the name of the group, or the id in digits.
func groupID(name, file string) (gid uint32, found bool) {
	eachLine(file, func(fields []string) bool {
		if len(fields) >= 3 && fields[0] == name {
			gid, found = id(fields[2])
		}
		return !found
	})
	if !found {
		gid, found = id(name)
	}
	return gid, found
}

// maxGroups bounds the number of groups of an account.
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
	return uint32(n), err == nil && n != 1<<32-1 // this number means no id
}

// maxAccounts bounds the bytes that are read of an account file, because the sandbox's code can
// write to such a file.
const maxAccounts = 1 << 20

// eachLine calls visit with the fields of each line, until visit returns false.
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
