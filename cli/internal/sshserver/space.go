package sshserver

import (
	"fmt"

	"github.com/pkg/sftp"
)

// StatVFS describes the file system of a path, for df of sftp.
func (f *files) StatVFS(r *sftp.Request) (*sftp.StatVFS, error) {
	out, err := f.run(r.Context(), "stat", "-L", "-f", "-c", "%s %S %b %f %a %c %d %l", "--", r.Filepath)
	if err != nil {
		return nil, f.refused(err)
	}
	var s sftp.StatVFS
	if _, err := fmt.Sscan(out, &s.Bsize, &s.Frsize, &s.Blocks, &s.Bfree, &s.Bavail, &s.Files, &s.Ffree, &s.Namemax); err != nil {
		return nil, f.refused(fmt.Errorf("stat in the sandbox printed %.100q: %w", out, err))
	}
	s.Favail = s.Ffree
	return &s, nil
}
