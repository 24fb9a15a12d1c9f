package state_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// saved is a state with everything that a file can contain: values that share a
// blob, and one without a blob.
func saved(tb testing.TB) (*state.State, []byte) {
	tb.Helper()
	st := state.New()
	large := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	for name, v := range map[string]any{"one": large, "two": []any{large, "x"}, "größe": state.Date{Year: 2026, Month: 11, Day: 21}} {
		must.Do(tb, st.Set(name, v))
	}
	var b bytes.Buffer
	n, err := st.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		tb.Fatalf("%d bytes, said %d, %v", b.Len(), n, err)
	}
	return st, b.Bytes()
}

func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	st, file := saved(t)
	if len(file) > 160<<10 {
		t.Errorf("%d bytes, want at most %d: the content that two values share is there twice", len(file), 160<<10)
	}
	r := bytes.NewReader(append(bytes.Clone(file), "what follows"...))
	back, err := state.Load(r, state.Bounds{})
	must.Do(t, err)
	if rest, _ := io.ReadAll(r); string(rest) != "what follows" {
		t.Errorf("left: %.40q, want %.40q", rest, "what follows")
	}
	want, got := st.Entries(), back.Entries()
	for i := range want {
		if want[i].Name != got[i].Name || want[i].Hash != got[i].Hash || !bytes.Equal(want[i].Value.Bytes(), got[i].Value.Bytes()) {
			t.Errorf("%s came back as %s", want[i].Name, got[i].Name)
		}
	}
	if _, err := state.Load(iotest.OneByteReader(bytes.NewReader(file)), state.Bounds{}); err != nil {
		t.Error(err)
	}
}

// full is a disk that has space for so many bytes.
type full int

var errFull = errors.New("no space")

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), int(*f))
	if *f -= full(n); n < len(p) {
		return n, errFull
	}
	return n, nil
}

// TestSaveToAFullDisk checks that a state that does not fit is an error, with the number of bytes that were written.
func TestSaveToAFullDisk(t *testing.T) {
	t.Parallel()
	st, file := saved(t)
	for _, space := range []int{0, 1, 100, 4096, 4097, len(file) / 2, len(file) - 100, len(file) - 1, len(file)} {
		left := full(space)
		n, err := st.WriteTo(&left)
		if n != int64(space) || errors.Is(err, errFull) != (space < len(file)) || err != nil != (space < len(file)) {
			t.Errorf("%d bytes of %d fit: got %d bytes written and error %v", space, len(file), n, err)
		}
	}
}

// A file that is cut off or damaged anywhere is an error, never another state.
func TestLoadDamaged(t *testing.T) {
	t.Parallel()
	_, file := saved(t)
	step := func(i int) int { // every byte of heads, some of content
		if i > 300 && i < len(file)-700 {
			return 4099
		}
		return 1
	}
	for i := 0; i < len(file); i += step(i) {
		if _, err := state.Load(bytes.NewReader(file[:i]), state.Bounds{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut off after %d bytes: %v, want io.ErrUnexpectedEOF", i, err)
		}
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x40
		if _, err := state.Load(bytes.NewReader(damaged), state.Bounds{}); err == nil {
			t.Fatalf("damaged at byte %d: loaded, want an error", i)
		}
	}
	if _, err := state.Load(bytes.NewReader(file), state.Bounds{MaxBytes: int64(len(file) / 2)}); !isLimit(err, "MaxBytes") {
		t.Errorf("a file over the limit: %v, want a *state.LimitError of MaxBytes", err)
	}
	failed := errors.New("injected")
	if _, err := state.Load(iotest.ErrReader(failed), state.Bounds{}); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	st, _ := saved(t)
	if _, err := st.WriteTo(failingWriter{failed}); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
}

// A file is loaded within exactly the bytes up to the end of its last value, and a name has
// at most 4 KiB.
func TestLoadBounds(t *testing.T) {
	t.Parallel()
	const end = 1 + sha256.Size // the mark of the end, and the checksum
	for length, fits := range map[int]bool{1: true, 4096: true, 4097: false} {
		st := state.New()
		must.Do(t, st.Set(strings.Repeat("n", length), "value"))
		var file bytes.Buffer
		if _, err := st.WriteTo(&file); err != nil {
			t.Fatal(err)
		}
		_, err := state.Load(bytes.NewReader(file.Bytes()), state.Bounds{MaxBytes: int64(file.Len() - end)})
		if _, damaged := errors.AsType[*state.FormatError](err); damaged == fits || (err == nil) != fits {
			t.Errorf("a name of %d bytes: got error %v, want it to fit: %t", length, err, fits)
		}
		if _, err := state.Load(bytes.NewReader(file.Bytes()), state.Bounds{MaxBytes: int64(file.Len()-end) - 1}); !isLimit(err, "MaxBytes") {
			t.Errorf("one byte too many: got error %v, want a *state.LimitError of MaxBytes", err)
		}
	}
}

// Records are checked by themselves, too: a forger can compute the checksum of the whole.
func TestLoadForged(t *testing.T) {
	t.Parallel()
	st := state.New()
	must.Do(t, st.Set("name", bytes.Repeat([]byte("leaf"), 1<<14)))
	var file bytes.Buffer
	if _, err := st.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	head := len("e2bctl state\n") + 1
	records := file.Bytes()[head : file.Len()-1-sha256.Size]
	for what, forged := range map[string]struct {
		records []byte
		reason  string // "": it is loaded
	}{
		"as it was":           {records, ""},
		"the name twice":      {slices.Concat(records, records), "there twice"},
		"an unknown record":   {append([]byte("x"), records...), "unknown record"},
		"another leaf":        {bytes.Replace(records, []byte("leafleaf"), []byte("leafLEAF"), 1), "is damaged"},
		"another document":    {bytes.Replace(records, []byte(`"size":65536`), []byte(`"size":65537`), 1), "is damaged"},
		"a leaf that is gone": {records[1+sha256.Size+8+1<<16:], "is missing"},
	} {
		whole := append(slices.Concat(file.Bytes()[:head], forged.records), 'e')
		sum := sha256.Sum256(whole)
		_, err := state.Load(bytes.NewReader(append(whole, sum[:]...)), state.Bounds{})
		if (err == nil) != (forged.reason == "") || err != nil && !strings.Contains(err.Error(), forged.reason) {
			t.Errorf("%s: got error %v, want %q", what, err, forged.reason)
		}
	}
}

// TestFormatErrors checks every field of the error for a file that cannot be loaded, and its text.
func TestFormatErrors(t *testing.T) {
	t.Parallel()
	_, file := saved(t)
	failed := errors.New("injected")
	const head = len("e2bctl state\n") + 1
	changed := func(at int, to byte) io.Reader {
		damaged := bytes.Clone(file)
		damaged[at] = to
		return bytes.NewReader(damaged)
	}
	last := len(file) - 1
	for text, tt := range map[string]struct {
		r    io.Reader
		want state.FormatError
	}{
		"state: load (byte 14): it is not a saved state": {changed(0, 'x'), state.FormatError{Offset: int64(head), Reason: "it is not a saved state"}},
		"state: load (byte 14): it has version 2, and this program reads version 1": {
			changed(head-1, 2), state.FormatError{Offset: int64(head), Reason: "it has version 2, and this program reads version 1"},
		},
		"state: load (byte 15): unknown record 'x'": {changed(head, 'x'), state.FormatError{Offset: int64(head + 1), Reason: "unknown record 'x'"}},
		"state: load (byte 20): it ends in the middle: unexpected EOF": {
			bytes.NewReader(file[:20]), state.FormatError{Offset: 20, Reason: "it ends in the middle", Err: io.ErrUnexpectedEOF},
		},
		"state: load (byte 0): read: injected": {iotest.ErrReader(failed), state.FormatError{Reason: "read", Err: failed}},
		fmt.Sprintf("state: load (byte %d): its checksum does not match: it is damaged", len(file)): {
			changed(last, file[last]+1), state.FormatError{Offset: int64(len(file)), Reason: "its checksum does not match: it is damaged"},
		},
	} {
		_, err := state.Load(tt.r, state.Bounds{})
		got, ok := errors.AsType[*state.FormatError](err)
		if !ok || got.Error() != text {
			t.Errorf("got error %v, want %s", err, text)
			continue
		}
		if diff := cmp.Diff(tt.want, *got, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if tt.want.Err != nil && !errors.Is(got, tt.want.Err) {
			t.Errorf("%s: it does not match %v", text, tt.want.Err)
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func isLimit(err error, limit string) bool {
	e, ok := errors.AsType[*state.LimitError](err)
	return ok && e.Limit == limit
}

func FuzzLoad(f *testing.F) {
	_, file := saved(f)
	f.Add(file)
	small := state.New()
	must.Do(f, small.Set("x", 1))
	var b bytes.Buffer
	if _, err := small.WriteTo(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		st, err := state.Load(bytes.NewReader(file), state.Bounds{MaxBytes: 1 << 18, MaxNodes: 1 << 12})
		if err != nil {
			return
		}
		var again bytes.Buffer
		if _, err := st.WriteTo(&again); err != nil {
			t.Fatal(err)
		}
		if _, err := state.Load(&again, state.Bounds{}); err != nil {
			t.Fatal(err)
		}
	})
}
