package sandbox

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/mirror"
)

// TestChangesOfASync checks the line of each change, and that an output which takes none is an error.
func TestChangesOfASync(t *testing.T) {
	t.Parallel()
	changes := []mirror.Change{{Type: "send", Name: "a\nb\x1b[1m", Size: 3}, {Type: "remove", Name: "c"}}
	for what, test := range map[string]struct {
		opts syncOptions
		want string
	}{
		"lines": {syncOptions{}, "send    a b[1m\nremove  c\n"}, "names": {syncOptions{Quiet: true}, "a b[1m\nc\n"},
		"JSON": {syncOptions{JSON: true}, `{"type":"send","name":"a\nb\u001b[1m","size":3}` + "\n" + `{"type":"remove","name":"c","size":0}` + "\n"},
	} {
		var out bytes.Buffer
		test.opts.IO = &cmdutil.IOStreams{Out: &out}
		if err := test.opts.print(changes); err != nil || out.String() != test.want {
			t.Errorf("%s: got %q and error %v, want %q", what, &out, err, test.want)
		}
		full := &fullWriter{}
		test.opts.IO.Out = full
		if err := test.opts.print(changes); !errors.Is(err, syscall.ENOSPC) || full.writes != 1 {
			t.Errorf("%s, full: got error %v after %d writes, want one", what, err, full.writes)
		}
	}
}

// fullWriter is a file on a full disk.
type fullWriter struct{ writes int }

func (f *fullWriter) Write([]byte) (int, error) { f.writes++; return 0, syscall.ENOSPC }

// TestSyncSource checks from where the files are said to come.
func TestSyncSource(t *testing.T) {
	t.Parallel()
	o := syncOptions{ID: "i1", Mirror: mirror.Mirror{Dir: "b", Local: "a"}}
	if got := o.source(); got != "a" {
		t.Errorf("got %s, want the directory of this machine", got)
	}
	if o.Pull = true; o.source() != "i1:b" {
		t.Errorf("got %s, want the directory of the sandbox", o.source())
	}
}
