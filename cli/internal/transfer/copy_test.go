package transfer

import "testing"

func TestRemotePath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"~": ".", "~/app": "app", "~//etc": "etc", "app/": "app", "/srv/app": "/srv/app", "a//b/../c": "a/c", "~user/x": "~user/x",
	} {
		if got := remotePath(in); got != want {
			t.Errorf("remotePath(%q) = %q, want %q", in, got, want)
		}
	}
}
