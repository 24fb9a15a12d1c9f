package localcloud

import (
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// A host is allowed at the ports that were answered with always. One port or all of them
// are taken back.
func TestForgetHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, address := range []string{"pypi.org:443", "pypi.org:80", "pypi.org:443", "[2001:db8::1]:22", "files.pypi.org:443", "noport", "pypi.org:22"} {
		must.Do(t, AllowHost(dir, address))
	}
	for _, tt := range []struct {
		host            string
		forgotten, left []string
	}{
		{"pypi.org:22", []string{"pypi.org:22"}, []string{"[2001:db8::1]:22", "files.pypi.org:443", "noport", "pypi.org:443", "pypi.org:80"}},
		{"pypi.org", []string{"pypi.org:443", "pypi.org:80"}, []string{"[2001:db8::1]:22", "files.pypi.org:443", "noport"}},
		{"2001:db8::1", []string{"[2001:db8::1]:22"}, []string{"files.pypi.org:443", "noport"}},
	} {
		forgotten, err := ForgetHost(dir, tt.host)
		must.Do(t, err)
		left, err := AllowedHosts(dir)
		must.Do(t, err)
		if diff := cmp.Diff([][]string{tt.forgotten, tt.left}, [][]string{forgotten, left}); diff != "" {
			t.Errorf("%s: forgotten and left (-want +got):\n%s", tt.host, diff)
		}
	}
	for _, host := range []string{"files.pypi.org:80", "pypi.org", "org", ""} {
		_, err := ForgetHost(dir, host)
		must.Is(t, err, fs.ErrNotExist)
	}
}
