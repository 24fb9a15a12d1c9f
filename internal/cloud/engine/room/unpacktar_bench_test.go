//go:build linux

package room

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// BenchmarkUnpackTar compares how long unpacking a pulled, compressed layer of an image takes
// with tar -xz and a sync of the same layer in the same run: tar-ms is the time of tar, and
// ratio how many times longer it took here.
func BenchmarkUnpackTar(b *testing.B) {
	for _, bench := range []struct {
		name  string
		write func(b *testing.B, w *tar.Writer)
	}{{"one of 100 MB", writeOne}, {"the Go library", writeLibrary}} {
		b.Run(bench.name, func(b *testing.B) {
			r := newRoom(b)
			packed := filepath.Join(b.TempDir(), "layer.tar.gz")
			writePacked(b, packed, bench.write)
			var ours, theirs time.Duration
			for b.Loop() {
				began := time.Now()
				unpackPacked(b, r, packed)
				ours += time.Since(began)
				b.StopTimer()
				to := layerDir(b)
				began = time.Now()
				if out, err := exec.Command("sh", "-c", "tar -xzf \"$1\" -C \"$2\" && sync -f \"$2\"", "sh", packed, to).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				theirs += time.Since(began)
				b.StartTimer()
			}
			b.ReportMetric(float64(theirs.Milliseconds())/float64(b.N), "tar-ms")
			b.ReportMetric(ours.Seconds()/theirs.Seconds(), "ratio")
		})
	}
}

func unpackPacked(b *testing.B, r *Room, packed string) {
	b.Helper()
	f, err := os.Open(packed)
	must.Do(b, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	must.Do(b, err)
	must.Do(b, r.UnpackTar(b.Context(), nil, plain, layerDir(b)))
}

func writePacked(b *testing.B, to string, write func(b *testing.B, w *tar.Writer)) {
	b.Helper()
	f, err := os.Create(to)
	must.Do(b, err)
	defer f.Close()
	packed := gzip.NewWriter(f)
	w := tar.NewWriter(packed)
	write(b, w)
	must.Do(b, w.Close())
	must.Do(b, packed.Close())
}

func writeOne(b *testing.B, w *tar.Writer) {
	line := bytes.Repeat([]byte("0123456789abcdef"), 4)
	must.Do(b, w.WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: 100 << 20}))
	for n := range 100 << 20 / len(line) {
		copy(line, fmt.Sprintf("%d ", n*7919))
		_, err := w.Write(line)
		must.Do(b, err)
	}
}

func writeLibrary(b *testing.B, w *tar.Writer) {
	root := filepath.Join(goRoot(b), "src")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
			return err
		}
		h.Name, _ = filepath.Rel(filepath.Dir(root), name)
		if err := w.WriteHeader(h); err != nil || info.IsDir() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
	must.Do(b, err)
}

func goRoot(b *testing.B) string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("there is no Go here: ", err)
	}
	return string(bytes.TrimSpace(out))
}
