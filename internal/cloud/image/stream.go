package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory, in bytes, that a compressed layer can require.
const maxWindow = 128 << 20

// decompress returns the uncompressed content of a layer. The first bytes determine the
// compression, as in Docker.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 256<<10)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(b, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// digestError reports that the content does not have the expected digest.
type digestError struct{ got, want v1.Hash }

func (e *digestError) Error() string {
	return fmt.Sprintf("its digest is %s, not %s: it is damaged or was tampered with", e.got, e.want)
}

// verifier reads the content of a layer and counts the bytes. At the end it verifies the
// digest.
type verifier struct {
	r      io.Reader
	want   v1.Hash
	sum    hash.Hash
	count  func(n int64) error
	failed error // error of the last Read that failed, except io.EOF
}

// newVerifier returns a verifier of the content r, whose digest must be want. It adds the number of
// bytes of r to the unpacked bytes of the pull p.
func newVerifier(r io.Reader, want v1.Hash, p *pull) (*verifier, error) {
	sum, err := v1.Hasher(want.Algorithm)
	return &verifier{r: r, want: want, sum: sum, count: p.count}, err
}

// count adds unpacked bytes. It returns an error if the image is too large.
func (p *pull) count(n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used += n; p.used > p.options.MaxBytes {
		return p.tooLarge()
	}
	return nil
}

func (v *verifier) Read(p []byte) (n int, err error) {
	n, err = v.r.Read(p)
	v.sum.Write(p[:n])
	if tooMany := v.count(int64(n)); tooMany != nil {
		err = tooMany
	}
	if err != nil && !errors.Is(err, io.EOF) {
		v.failed = err
	}
	return n, err
}

// finish reads the rest of the content. It returns an error if the content does not have the
// expected digest.
func (v *verifier) finish() error {
	if _, err := io.Copy(io.Discard, v); err != nil {
		return err
	}
	return compare(v.sum, v.want)
}

func compare(sum hash.Hash, want v1.Hash) error {
	got := v1.Hash{Algorithm: want.Algorithm, Hex: fmt.Sprintf("%x", sum.Sum(nil))}
	if got != want {
		return &digestError{got, want}
	}
	return nil
}

// whole reads a stream of known size and digest. It returns io.EOF only after it has verified the
// size and the digest.
type whole struct {
	io.Reader
	io.Closer
	sum  hash.Hash
	left int64
	want v1.Hash
}

func newWhole(r io.ReadCloser, size int64, want v1.Hash) (io.ReadCloser, error) {
	sum, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &whole{Reader: io.LimitReader(r, size+1), Closer: r, sum: sum, left: size, want: want}, nil
}

func (w *whole) Read(p []byte) (n int, err error) {
	n, err = w.Reader.Read(p)
	w.sum.Write(p[:n])
	w.left -= int64(n)
	switch {
	case w.left < 0:
		return 0, fmt.Errorf("it is longer than it was said to be: it is damaged or was tampered with")
	case !errors.Is(err, io.EOF):
		return n, err
	case w.left > 0:
		return n, io.ErrUnexpectedEOF
	}
	if failed := compare(w.sum, w.want); failed != nil {
		return n, failed
	}
	return n, io.EOF
}
