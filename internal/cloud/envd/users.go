//go:build linux

package envd

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// User is an account of the sandbox.
type User = guest.User

type users struct {
	list     []User
	fallback *User // user for a request without a user
	passwd   idNames
	group    idNames
	anyUser  bool   // processes may use every id
	single   string // why the users in the list share one id, and a remedy
}

func newUsers(list []User, fallback string, anyUser bool, single string) (*users, error) {
	if len(list) == 0 {
		return nil, errors.New("no users given")
	}
	u := &users{list: append([]User(nil), list...), passwd: idNames{file: passwdFile}, group: idNames{file: groupFile}, anyUser: anyUser}
	u.single = cmp.Or(single, "on this machine it has a single one, for root and user; start the local cloud as root")
	if fallback == "" {
		fallback = list[0].Name
	}
	var err error
	if u.fallback, err = u.named(fallback); err != nil {
		return nil, fmt.Errorf("default user: %w", err)
	}
	return u, nil
}

// named returns the account of the sandbox with this name. The account may be built in, or may have
// been added to the account files.
func (u *users) named(name string) (*User, error) {
	for i := range u.list {
		if u.list[i].Name == name {
			return &u.list[i], nil
		}
	}
	if user := u.find(name); user != nil {
		return u.usable(user)
	}
	return nil, fmt.Errorf("user: unknown user %s", bounded(name))
}

// lookup returns an account like [users.named]. An empty name means the default user, and errors
// have the texts of the file routes.
func (u *users) lookup(name string) (*User, error) {
	if name == "" {
		return u.fallback, nil
	}
	user, err := u.named(name)
	if err != nil {
		return nil, fmt.Errorf("error looking up user '%s': %w", bounded(name), err)
	}
	return user, nil
}

// owner returns the name of a user id, or the id as text. If several users share the id, owner
// returns the name of the default user.
func (u *users) owner(uid uint32) string {
	if u.fallback.UID == uid {
		return u.fallback.Name
	}
	for i := range u.list {
		if u.list[i].UID == uid {
			return u.list[i].Name
		}
	}
	return u.passwd.name(uid)
}

// ownerGroup returns the name of a group id, or the id as text. The group of an account has the
// name of the account.
func (u *users) ownerGroup(gid uint32) string {
	if u.fallback.GID == gid {
		return u.fallback.Name
	}
	for i := range u.list {
		if u.list[i].GID == gid {
			return u.list[i].Name
		}
	}
	return u.group.name(gid)
}

// idNames contains names from a file in the format of /etc/passwd or /etc/group. It reads the
// file again whenever the file has changed, because packages add accounts while a sandbox runs.
type idNames struct {
	file string

	mu     sync.Mutex
	readAt syscall.Stat_t
	names  map[uint32]string
}

func (n *idNames) name(id uint32) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refresh()
	if name, ok := n.names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (n *idNames) refresh() {
	// Bounds of the data that a sandbox can make this process read and keep.
	const maxSize, maxNames = 1 << 20, 4096
	var now syscall.Stat_t
	if err := syscall.Stat(n.file, &now); err != nil {
		n.names = nil
		return
	}
	if n.names != nil && now.Mtim == n.readAt.Mtim && now.Ino == n.readAt.Ino && now.Size == n.readAt.Size {
		return
	}
	f, err := openRegular(n.file)
	if err != nil {
		n.names = nil
		return
	}
	defer f.Close()
	n.readAt, n.names = now, make(map[uint32]string)
	for lines := bufio.NewScanner(io.LimitReader(f, maxSize)); lines.Scan() && len(n.names) < maxNames; {
		fields := strings.SplitN(lines.Text(), ":", 4)
		if len(fields) < 3 {
			continue
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		if _, taken := n.names[uint32(id)]; !taken {
			n.names[uint32(id)] = fields[0]
		}
	}
}
