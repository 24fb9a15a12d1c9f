package docker

import (
	"archive/tar"
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// idsOf returns the user id and the group id of a container's user. "" is the user in the container's
// configuration. idsOf parses "name", "name:group" and numeric forms as the daemon does.
func (e *Engine) idsOf(ctx context.Context, container, named string) (user, group int, err error) {
	if named == "" {
		inspected, err := e.client.ContainerInspect(ctx, container, client.ContainerInspectOptions{})
		if err != nil {
			return 0, 0, err
		}
		named = inspected.Container.Config.User
	}
	name, of, grouped := strings.Cut(named, ":")
	if name == "" {
		name = "0"
	}
	account, err := e.lookUp(ctx, container, "/etc/passwd", name)
	if err != nil {
		return 0, 0, err
	}
	user, known := id(name)
	if account != nil {
		if user, known = id(account[2]); known {
			group, known = id(account[3])
		}
	}
	if grouped && known {
		if group, known = id(of); !known {
			if account, err = e.lookUp(ctx, container, "/etc/group", of); err != nil {
				return 0, 0, err
			}
			if account != nil {
				group, known = id(account[2])
			}
		}
	}
	if !known {
		return 0, 0, engine.Lackf(engine.Mounts, "the files /etc/passwd and /etc/group of the image do not say which ids the user %.80q has: name the user by numbers", named)
	}
	return user, group, nil
}

func id(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}

// maxAccounts bounds the bytes that are read from /etc/passwd or /etc/group.
const maxAccounts = 1 << 20

// lookUp returns the fields of the first line with the given name or number in an account file of a
// container. It returns nil if there is no such line or no such file, or if the file is a symbolic
// link.
func (e *Engine) lookUp(ctx context.Context, container, file, name string) ([]string, error) {
	copied, err := e.client.CopyFromContainer(ctx, container, client.CopyFromContainerOptions{SourcePath: file})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer copied.Content.Close()
	archive := tar.NewReader(io.LimitReader(copied.Content, maxAccounts))
	if _, err := archive.Next(); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(archive); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) >= 4 && (fields[0] == name || fields[2] == name) {
			return fields, nil
		}
	}
	return nil, nil
}
