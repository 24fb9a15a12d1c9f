package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/e2bctl/e2bctl/internal/must"
)

// A tar stream is whole only with its end, wherever it is cut off and however it comes.
func TestWholeTar(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, content := range []string{"one", string(make([]byte, 3000))} { // the second is all zeros
		must.Do(t, w.WriteHeader(&tar.Header{Name: "file", Size: int64(len(content))}))
		_, err := io.WriteString(w, content)
		must.Do(t, err)
	}
	withoutEnd := archive.Len()
	must.Do(t, w.Close())
	padded := append(bytes.Clone(archive.Bytes()), make([]byte, 5000)...)
	for _, data := range [][]byte{archive.Bytes(), padded, make([]byte, tarEnd)} {
		for _, r := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data)), iotest.DataErrReader(bytes.NewReader(data))} {
			if got, err := io.ReadAll(&wholeTar{r: r}); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes: got %d, %v", len(data), len(got), err)
			}
		}
	}
	for _, n := range []int{0, 1, 512, 515, 1024, tarEnd - 1, 1536} {
		if _, err := io.ReadAll(&wholeTar{r: bytes.NewReader(archive.Bytes()[:n])}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v, want io.ErrUnexpectedEOF", n, withoutEnd, err)
		}
	}
	after := append(bytes.Clone(archive.Bytes()), make([]byte, 600)...)
	after[len(after)-tarEnd+1] = 'x' // something after the end begins anew
	if _, err := io.ReadAll(&wholeTar{r: bytes.NewReader(after)}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an archive that goes on after its end: %v, want io.ErrUnexpectedEOF", err)
	}
	if _, err := io.ReadAll(&wholeTar{r: iotest.OneByteReader(bytes.NewReader(after))}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an archive that goes on after its end, byte by byte: %v, want io.ErrUnexpectedEOF", err)
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(&wholeTar{r: iotest.ErrReader(broken)}); !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
}
