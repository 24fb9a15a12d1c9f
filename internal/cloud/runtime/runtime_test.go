//go:build linux

package runtime

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func instanceDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "instance")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestBasic(t *testing.T) {
	r := newRoom(t)
	t.Logf("%+v", r.Report())
	s := newSandbox(t, r, SandboxOptions{})
	t.Logf("%+v", sh(t, s, "id; hostname; ps aux; ls -la / /etc /dev /home; cat /proc/self/uid_map /proc/self/status; mount; df -h; touch /usr/x && echo ok; python3 -V"))
}
