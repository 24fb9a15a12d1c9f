package transfer

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

func TestAmount(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{
		0: "0 bytes", 1: "1 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1536: "1.5 KiB",
		1<<20 - 1: "1024.0 KiB", 1 << 20: "1.0 MiB", 1 << 30: "1.0 GiB", 1 << 40: "1.0 TiB", 5000 << 40: "5000.0 TiB",
	} {
		if got := amount(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}

// TestMeter checks when the meter shows something, and that each line replaces the whole of the
// earlier one.
func TestMeter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		streams := &cmdutil.IOStreams{Err: &shown, ErrIsTerminal: true}
		is := func(when, want string) {
			t.Helper()
			if got := shown.String(); got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
			shown.Reset()
		}
		m := NewMeter(streams, false)
		time.Sleep(meterDelay - 1) //nolint:forbidigo // its time is fake
		m.Show(1)
		m.End()
		is("a short copy", "")
		time.Sleep(time.Nanosecond) //nolint:forbidigo // its time is fake
		m.Show(100 << 20)
		is("after the delay", "\rcopied 100.0 MiB")
		time.Sleep(meterPause - 1) //nolint:forbidigo // its time is fake
		m.Show(2)
		is("in the pause", "")
		time.Sleep(time.Nanosecond) //nolint:forbidigo // its time is fake
		m.Show(2)
		is("after the pause", "\rcopied 2 bytes  ")
		m.End()
		is("in the end", "\r              \r")
		m.End()
		is("ended twice", "")
		for what, m := range map[string]*Meter{"quiet": NewMeter(streams, true), "no terminal": NewMeter(&cmdutil.IOStreams{Err: &shown}, false)} {
			time.Sleep(meterDelay) //nolint:forbidigo // its time is fake
			m.Show(1)
			m.End()
			is(what, "")
		}
	})
}
