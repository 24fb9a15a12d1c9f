package transfer

import (
	"path"
	"testing"
)

func TestFromHome(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"~": ".", "~/app": "app", "~//etc": "etc", "app/": "app", "/srv/app": "/srv/app", "a//b/../c": "a/c", "~user/x": "~user/x",
	} {
		if got := path.Clean(fromHome(in)); got != want {
			t.Errorf("fromHome(%q) = %q, want %q", in, got, want)
		}
	}
}
