package cmdutil

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestHostMounts(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	must.Do(t, err)
	var got hostMounts
	for _, value := range []string{"data:/data", "/a:b:/c:rw", "./x/../y:/z/rw"} {
		if err := got.Set(value); err != nil {
			t.Errorf("%s: got error %v", value, err)
		}
	}
	want := hostMounts{{Dir: filepath.Join(here, "data"), Path: "/data"}, {Dir: "/a:b", Path: "/c", Writable: true}, {Dir: filepath.Join(here, "y"), Path: "/z/rw"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, value := range []string{"", "data", ":/data", "data:data", "data:rw", "/data"} {
		if err := new(hostMounts).Set(value); err == nil {
			t.Errorf("%q: got no error", value)
		}
	}
}
