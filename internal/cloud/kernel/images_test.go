//go:build linux

package kernel

import (
	"os"
	"testing"
)

// A picture that is saved under a name is displayed.
func TestSavedPictures(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	if o := s.run("import PIL"); len(o.errors) > 0 {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI needs PIL in this Python: %+v", o.errors)
		}
		t.Skip("no PIL in this Python")
	}
	const picture = "from PIL import Image\npicture = Image.new('RGB', (2, 1), 'red')\n"
	for _, tt := range []struct {
		name, code, failure string
		shown               int
	}{
		{"by name", picture + "picture.save('a.png'); picture.save('b', 'JPEG', quality=50)", "", 2},
		{"to a file", picture + "picture.save(open('c.png', 'wb'), format='PNG')", "", 0},
		{"to a path", picture + "import pathlib; picture.save(pathlib.Path('d.png'))", "", 0},
		{"nowhere", picture + "picture.save('no/such/directory.png')", "FileNotFoundError", 0},
		{"by another import", "import importlib; importlib.import_module('PIL.Image').new('L', (1, 1)).save('e.png')", "", 1},
		{"by a child", picture + "import os\npid = os.fork()\nif pid == 0: picture.save('f.png'); os._exit(0)\nos.waitpid(pid, 0)[1]\nNone", "", 0},
	} {
		o := s.run(tt.code)
		if len(o.results) != tt.shown || o.reply.Name != tt.failure {
			t.Errorf("%s: %d results, events %v, reply %+v, stderr %q, want %d and the reply %q", tt.name, len(o.results), o.order, o.reply, o.stderr, tt.shown, tt.failure)
		}
		for _, r := range o.results {
			if r.Data["image/png"] == nil {
				t.Errorf("%s: %v is no picture", tt.name, r.Data)
			}
		}
	}
}
