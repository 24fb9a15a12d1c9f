//go:build linux

package envd

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTwoPaths names one file by two paths in calls that take two: by ".", by "..", through
// a linked directory, by a linked file and by a second name. No call loses the file's
// content.
func TestTwoPaths(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"dir/./a", "dir/../dir/a", "linked/a", "linked/../dir/a", "link", "second", "dir/second"} {
		d := serveNames(t)
		other := d.home + "/" + other
		for _, paths := range [][2]string{{d.home + "/dir/a", other}, {other, d.home + "/dir/a"}} {
			request := fmt.Sprintf(`{"source_paths":["b",%q],"destination":%q}`, paths[0], paths[1])
			if res, answer := d.do(t, "POST", "/files/compose", request); res.StatusCode != http.StatusBadRequest || !strings.Contains(answer, "equals destination") {
				t.Errorf("%s: %d %s, want 400 with %q", request, res.StatusCode, answer, "equals destination")
			}
			for path, want := range map[string]string{"/dir/a": "text", "/b": " and more"} {
				if got := content(t, d.home+path); got != want {
					t.Errorf("%s: %s holds %q, want %q", request, path, got, want)
				}
			}
		}
		twice := fmt.Sprintf(`{"source_paths":["dir/a",%q,"b"],"destination":"c"}`, other)
		if res, answer := d.do(t, "POST", "/files/compose", twice); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s, want 200", twice, res.StatusCode, answer)
		}
		if got, want := content(t, d.home+"/c"), "texttext and more"; got != want {
			t.Errorf("%s: composed %q, want %q", twice, got, want)
		}
	}
	for _, test := range []struct {
		to     string
		stays  bool // the file is still named "a"
		reason string
	}{
		{"dir/./a", true, "one entry"},
		{"linked/a", true, "one entry"},
		{"linked/../dir/a", true, "one entry"},
		{"second", false, "two names of one file"},
		{"dir/second", false, "two names of one file"},
		{"link", false, "a link to the source, which is replaced"},
	} {
		d := serveNames(t)
		to := d.home + "/" + test.to
		if _, err := d.files().Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: "dir/a", Destination: to})); err != nil {
			t.Errorf("to %s, %s: %v", test.to, test.reason, err)
		}
		if got := content(t, to); got != "text" {
			t.Errorf("to %s, %s: it holds %q, want %q", test.to, test.reason, got, "text")
		}
		if _, err := os.Lstat(d.home + "/dir/a"); (err == nil) != test.stays {
			t.Errorf("to %s, %s: the source: %v, want it there: %v", test.to, test.reason, err, test.stays)
		}
	}
}

// serveNames serves a file dir/a that has several names and can be reached by several
// paths, and a file b.
func serveNames(t *testing.T) *daemon {
	t.Helper()
	d := serve(t)
	err := os.Mkdir(d.home+"/dir", 0o755)
	put(t, d.home+"/dir/a", "text")
	put(t, d.home+"/b", " and more")
	must.Do(t, errors.Join(err, os.Symlink("dir", d.home+"/linked"), os.Symlink("dir/a", d.home+"/link"),
		os.Link(d.home+"/dir/a", d.home+"/second"), os.Link(d.home+"/dir/a", d.home+"/dir/second")))
	return d
}

// TestComposeOverDirectory: a file that cannot get its name leaves no temporary file.
func TestComposeOverDirectory(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/a", "text")
	must.Do(t, os.Mkdir(d.home+"/dir", 0o755))
	put(t, d.home+"/dir/b", "text")
	if res, answer := d.do(t, "POST", "/files/compose", `{"source_paths":["a"],"destination":"dir"}`); res.StatusCode != http.StatusBadRequest || !strings.Contains(answer, "is a directory") {
		t.Errorf("got %d %s, want 400 with %q", res.StatusCode, answer, "is a directory")
	}
	user, err := d.server.users.lookup("")
	must.Do(t, err)
	if err := concatenate(d.home+"/dir", []string{d.home + "/a"}, user); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if list := names(t, d.home); !slices.Equal(list, []string{"a", "dir"}) {
		t.Errorf("left %v, want a and dir", list)
	}
}
