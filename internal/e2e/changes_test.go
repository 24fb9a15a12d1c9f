//go:build linux

package e2e

import (
	"path"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// flood changes files without end, in a dozen processes.
const flood = `mkdir -p flood && cd flood && for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
python3 -c '
import os
open("f%d" % os.getpid(), "w").close()
print("ready", flush=True)
while True: os.chmod("f%d" % os.getpid(), 0o600); os.utime("f%d" % os.getpid())
' & done; wait`

// TestChangesInPlace checks that programs, code and clients can use their own files without
// namespaces, where another process makes all changes of files, also while the sandbox
// requests changes without end. The files of this user stay unchanged.
func TestChangesInPlace(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithIsolation(local.Restricted)).Create(t)
	busy, err := sb.Commands.Start(t.Context(), flood, nil)
	must.Do(t, err)
	defer busy.Disconnect()
	must.Do(t, sb.Files.Write(t.Context(), "mine-1.0-py3-none-any.whl", wheel(t, "mine", "1.0", "value = 42\n"), nil))
	for _, tt := range []struct{ name, command, want string }{
		{"the flood", `while [ "$(ls flood | wc -l)" -lt 12 ]; do :; done; ls flood | wc -l`, "12"},
		{"pip", "python3 -m pip install --quiet --no-index --target site ./mine-1.0-py3-none-any.whl && PYTHONPATH=site python3 -c 'import mine; print(mine.value)'", "42"},
		{"tar", "mkdir -p in/d && echo x > in/d/f && chmod 640 in/d/f && touch -d 2001-02-03 in/d/f && tar cf a.tar in && mkdir out && tar xpf a.tar -C out && stat -c '%a %y' out/in/d/f | cut -c1-14", "640 2001-02-03"},
		{"copies", "cp -a in copied && mv copied moved && install -m 750 in/d/f installed && stat -c %a moved/d/f installed", "640\n750"},
	} {
		if got := sandboxtest.Run(t, sb, tt.command); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	execution, err := sb.RunCode(t.Context(), "import os, shutil, stat; shutil.copy('in/d/f', 'copy'); shutil.copy2('in/d/f', 'copy2'); shutil.copytree('in', 'tree'); [stat.filemode(os.stat(f).st_mode) for f in ('copy', 'copy2', 'tree/d/f')]", nil)
	if want := "['-rw-r-----', '-rw-r-----', '-rw-r-----']"; err != nil || execution.Text() != want {
		t.Errorf("shutil: got %+v, %v, want %s", execution, err, want)
	}
	watcher, err := sb.Files.Watch(t.Context(), "in", nil)
	must.Do(t, err)
	defer watcher.Close()
	must.Do(t, sb.Files.WriteText(t.Context(), "in/new", "x", nil))
	for event, err := range watcher.Events(t.Context()) {
		if err != nil || event.Name == "new" {
			if err != nil {
				t.Error(err)
			}
			break
		}
	}
	home := sandboxtest.Run(t, sb, "pwd")
	for _, dir := range []string{"/usr", "/", path.Join(home, "../../..")} {
		if w, err := sb.Files.Watch(t.Context(), dir, nil); err == nil {
			t.Errorf("%s is watched", dir)
			w.Close()
		}
	}
	// These belong to the user if the Python is one that the user has prepared.
	python := strings.TrimSpace(sandboxtest.Run(t, sb, `python3 -c 'import os, sys; own = sys.prefix + "/pyvenv.cfg"; print(own if os.path.exists(own) else os.__file__)'`))
	for _, command := range []string{"touch -r FILE FILE", "chmod $(stat -c %a FILE) FILE", "chgrp $(stat -c %g FILE) FILE", "python3 -c 'import os; os.fchmod(os.open(\"FILE\", 0), 0o644)'"} {
		command = strings.ReplaceAll(command, "FILE", python)
		if result, err := sb.Commands.Run(t.Context(), "cat "+python+" && "+command, nil); err == nil || !strings.Contains(err.Error(), "not permitted") && !strings.Contains(err.Error(), "denied") {
			t.Errorf("%s: %+v, %v", command, result, err)
		}
	}
	if got := sandboxtest.Run(t, sb, "for f in flood/f*; do kill -0 ${f#flood/f} && echo runs; done"); got != strings.Repeat("runs\n", 11)+"runs" {
		t.Errorf("of the flood runs %q, want 12", got)
	}
}
