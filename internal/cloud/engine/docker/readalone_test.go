//go:build linux

package docker

import (
	"archive/tar"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSaveReadsAlone checks that the daemon is asked for all files of a container only where the
// written ones are many, or may be links to one file.
func TestSaveReadsAlone(t *testing.T) {
	t.Parallel()
	type file struct {
		name string
		size int64
		dir  bool
	}
	many := make([]file, maxAlone+1)
	for i := range many {
		many[i] = file{name: "/f" + strconv.Itoa(i), size: int64(i)}
	}
	for name, tt := range map[string]struct {
		files   []file
		exports int
	}{
		"none":      {nil, 0},
		"few":       {[]file{{"/a", 1, false}, {"/d", 0, true}, {"/d/b", 2, false}, {"/e", 0, true}}, 0},
		"links":     {[]file{{"/a", 1, false}, {"/b", 1, false}}, 1},
		"many":      {many, 1},
		"as may be": {many[:maxAlone], 0},
	} {
		exports := 0
		header := func(f file) *tar.Header {
			h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Base(f.name), Size: f.size, Mode: 0o640, Uid: 12, ModTime: time.Unix(1, 0)}
			if f.dir {
				h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
			}
			return h
		}
		add := func(out *tar.Writer, h *tar.Header) error {
			_, err := io.WriteString(out, strings.Repeat("x", int(h.Size)))
			return err
		}
		e := withDaemon(t, func(w http.ResponseWriter, r *http.Request) {
			out := tar.NewWriter(w)
			if strings.HasSuffix(r.URL.Path, "/export") {
				exports++
				for _, f := range tt.files {
					h := header(f)
					h.Name = f.name[1:]
					if err := errors.Join(out.WriteHeader(h), add(out, h)); err != nil {
						t.Error(err)
					}
				}
				_ = out.Close()
				return
			}
			for _, f := range tt.files {
				if f.name != r.URL.Query().Get("path") {
					continue
				}
				stat := container.PathStat{Name: path.Base(f.name), Size: f.size, Mode: 0o640, Mtime: time.Unix(1, 0)}
				if f.dir {
					stat.Mode |= os.ModeDir
				}
				text, err := json.Marshal(stat)
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(text))
				if r.Method == http.MethodHead {
					return
				}
				h := header(f)
				inside := tar.Header{Typeflag: tar.TypeReg, Name: path.Base(f.name) + "/inside", Mode: 0o600}
				if err := errors.Join(out.WriteHeader(h), add(out, h), out.WriteHeader(&inside), out.Close()); err != nil {
					t.Error(err)
				}
				return
			}
			w.WriteHeader(http.StatusNotFound)
		})
		written, want := map[string]bool{}, map[string]int64{}
		for _, f := range tt.files {
			written[f.name], want[f.name] = true, f.size
		}
		saved := filepath.Join(t.TempDir(), "saved")
		s := &sandbox{engine: e, name: "container", limits: engine.Limits{DiskBytes: 1 << 20}}
		if err := s.saveWritten(t.Context(), saved, written); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if exports != tt.exports {
			t.Errorf("%s: all files were exported %d times, want %d", name, exports, tt.exports)
		}
		if diff := cmp.Diff(want, sizesIn(t, saved)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// sizesIn returns the sizes of the files of an archive by their paths.
func sizesIn(t *testing.T, archive string) map[string]int64 {
	t.Helper()
	f, err := os.Open(archive)
	must.Do(t, err)
	defer f.Close()
	got := map[string]int64{}
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		must.Do(t, err)
		got[path.Join("/", h.Name)] = h.Size
	}
}
