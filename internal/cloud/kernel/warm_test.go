//go:build linux

package kernel

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	pydriver "github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestWarmFits(t *testing.T) {
	t.Parallel()
	two := []string{"PYTHONUTF8=1", "MPLCONFIGDIR=/m"}
	if w := (&Warm{Environ: two}); !w.fits([]string{"MPLCONFIGDIR=/m", "A=1", "PYTHONUTF8=1"}) || w.fits(two[:1]) || w.fits(two[1:]) || w.fits(nil) {
		t.Errorf("%q fits not the same variables in another order, or fits fewer ones", two)
	}
	w := &Warm{Environ: []string{"MPLCONFIGDIR=/m", "OTHER=1"}}
	for _, tt := range []struct {
		environ []string
		want    bool
	}{
		{[]string{"MPLCONFIGDIR=/m", "HOME=/root", "PATH=/bin", "TZ=UTC"}, true},
		{[]string{"HOME=/root"}, false},
		{[]string{"MPLCONFIGDIR=/n"}, false},
		{[]string{"MPLCONFIGDIR=/m", "PYTHONHASHSEED=1"}, false},
		{[]string{"MPLCONFIGDIR=/m", "LD_PRELOAD=/x.so"}, false},
		{[]string{"MPLCONFIGDIR=/m", "LC_ALL=C"}, false},
		{[]string{"MPLCONFIGDIR=/m", "OMP_NUM_THREADS=3"}, false},
	} {
		if got := w.fits(tt.environ); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.environ, got, tt.want)
		}
	}
}

// TestWarmFails: the kernel starts after any failure of the zygote's child.
func TestWarmFails(t *testing.T) {
	t.Parallel()
	for name, behave := range map[string]func(*net.UnixConn){
		"ends at once":         func(*net.UnixConn) {},
		"says nothing known":   func(c *net.UnixConn) { c.Write([]byte("hello\n")) },
		"speaks without end":   func(c *net.UnixConn) { c.Write([]byte(strings.Repeat("x", 1000))) },
		"is not a child":       func(c *net.UnixConn) { c.Write([]byte(`{"pid":1}` + "\n")) },
		"is this very process": func(c *net.UnixConn) { c.Write([]byte(`{"pid":` + "0}\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answered := checkWarm(t, &Warm{Fork: func(context.Context) (*os.File, error) {
				ours, theirs, err := child.SocketPair()
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { ours.Close() })
				behave(ours)
				return theirs, ours.CloseWrite()
			}})
			if answered != "2" {
				t.Errorf("1 + 1 is %s, want %s", answered, "2")
			}
		})
	}
	t.Run("there is none", func(t *testing.T) {
		t.Parallel()
		refused := errors.New("there is none")
		if got := checkWarm(t, &Warm{Fork: func(context.Context) (*os.File, error) { return nil, refused }}); got != "2" {
			t.Errorf("1 + 1 is %s, want %s", got, "2")
		}
	})
}

// checkWarm returns the value of 1 + 1 in a kernel with this source of processes.
func checkWarm(t *testing.T, w *Warm) string {
	t.Helper()
	dir := t.TempDir()
	driver, err := pydriver.WriteDriver(dir)
	must.Do(t, err)
	k := New(Spec{
		Python: []string{richPython(t)}, Driver: driver, Dir: dir, Warm: w, Logger: slog.New(slog.DiscardHandler),
		Environ: func() ([]string, error) { return []string{"PATH=/usr/bin:/bin", "HOME=" + dir}, nil },
	})
	t.Cleanup(func() { k.Close() })
	return attach(t, k).run("1 + 1").text()
}

// TestStartsWarm checks the three conditions of a process that is forked.
func TestStartsWarm(t *testing.T) {
	t.Parallel()
	warm := &Warm{Environ: []string{"MPLCONFIGDIR=/m"}}
	for _, test := range []struct {
		warm    *Warm
		cold    bool
		environ string
		want    bool
	}{
		{warm, false, "MPLCONFIGDIR=/m", true},
		{warm, true, "MPLCONFIGDIR=/m", false},
		{warm, false, "MPLCONFIGDIR=/n", false},
		{nil, false, "MPLCONFIGDIR=/m", false},
	} {
		k := &Kernel{spec: Spec{Warm: test.warm}, cold: test.cold}
		if got := k.startsWarm([]string{test.environ}); got != test.want {
			t.Errorf("with a zygote: %v, after a version changed: %v, with %s: got %v, want %v", test.warm != nil, test.cold, test.environ, got, test.want)
		}
	}
}
