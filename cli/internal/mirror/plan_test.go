package mirror

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlan(t *testing.T) {
	t.Parallel()
	file, dir, link := entry{size: 3, perm: 0o644}, entry{kind: fs.ModeDir, perm: 0o755}, entry{kind: fs.ModeSymlink, target: "x"}
	later := file
	later.modTime = time.Unix(1, 0)
	keeps := dir
	keeps.keeps = true
	for name, tt := range map[string]struct {
		from, to tree
		remove   bool
		want     []Change
		send     []string
		clear    []string
		gone     []string
		refused  bool
	}{
		"nothing differs":             {from: tree{"d": dir, "d/f": file}, to: tree{"d": dir, "d/f": file}, remove: true},
		"all is new":                  {from: tree{"d": dir, "d/f": file}, want: []Change{{Create, "d", 0}, {Create, "d/f", 3}}, send: []string{"d", "d/f"}},
		"later":                       {from: tree{"d": dir, "d/f": later}, to: tree{"d": dir, "d/f": file}, want: []Change{{Update, "d/f", 3}}, send: []string{"d", "d/f"}},
		"only there":                  {to: tree{"d": dir, "d/f": file}},
		"only there, removed":         {to: tree{"d": dir, "d/f": file}, remove: true, want: []Change{{Remove, "d", 0}, {Remove, "d/f", 0}}, gone: []string{"d/f", "d"}},
		"with something ignored":      {to: tree{"d": keeps, "d/f": file}, remove: true, want: []Change{{Remove, "d/f", 0}}, gone: []string{"d/f"}},
		"a file for a directory":      {from: tree{"d": file}, to: tree{"d": dir, "d/f": file}, refused: true},
		"the same, removed":           {from: tree{"d": file}, to: tree{"d": dir, "d/f": file}, remove: true, want: []Change{{Update, "d", 3}, {Remove, "d/f", 0}}, send: []string{"d"}, clear: []string{"d/f", "d"}},
		"with something ignored, too": {from: tree{"d": link}, to: tree{"d": keeps}, remove: true, refused: true},
		"a directory for a file":      {from: tree{"d": dir}, to: tree{"d": file}, want: []Change{{Update, "d", 0}}, send: []string{"d"}, clear: []string{"d"}},
		"what cannot be sent":         {from: tree{"f": {kind: unsendable}}, to: tree{"f": file}, remove: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newPlan(tt.from, tt.to, tt.remove)
			if tt.refused {
				if path, ok := errors.AsType[*fs.PathError](err); !ok || path.Op != "replace" || path.Path != "d" || !errors.Is(err, syscall.EISDIR) {
					t.Errorf("got %v, want EISDIR for a replacement of d", err)
				}
				return
			}
			must.Do(t, err)
			if diff := cmp.Diff(plan{tt.want, tt.send, tt.clear, tt.gone}, *p, cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
