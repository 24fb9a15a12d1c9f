//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/sandbox"
)

// megabytes returns the name of a row about throughput.
func (b *bench) megabytes(what string) string { return fmt.Sprintf("%d MiB %s", b.bulk>>20, what) }

// transfer measures calls that move much data. It also measures the memory that the client and the
// sandbox need for these calls.
func (b *bench) transfer(do call) measurement {
	return moving(b.bulk, func(ctx context.Context, runs int) (r result, err error) {
		err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
			if r, err = repeat(ctx, runs, whole(func(ctx context.Context) error { return do(ctx, sb) })); err != nil {
				return err
			}
			most, err := envdPeak()
			if most > 0 {
				r.notes = append(r.notes, fmt.Sprintf("envd %d MB", most/1e6))
			}
			return err
		})
		return r, err
	})
}

func (b *bench) commandOutput(ctx context.Context, sb *sandbox.Sandbox) error {
	var got counter
	_, err := sb.Commands.Run(ctx, fmt.Sprintf("head -c %d /dev/zero", b.bulk), &sandbox.CommandParams{Stdout: &got})
	return errors.Join(err, b.complete(int64(got)))
}

func (b *bench) uploadFile(ctx context.Context, sb *sandbox.Sandbox) error {
	return sb.Files.WriteFrom(ctx, "bulk", zeros(b.bulk), nil)
}

// withFile returns a call that creates the file bulk before the first call of do. The bytes of the file
// are random, so that nothing gains by compressing them on the way.
func (b *bench) withFile(do call) call {
	made := ""
	return func(ctx context.Context, sb *sandbox.Sandbox) error {
		if made != sb.ID() {
			made = sb.ID()
			if err := sb.Files.WriteFrom(ctx, "bulk", noise(b.bulk), nil); err != nil {
				return err
			}
		}
		return do(ctx, sb)
	}
}

func (b *bench) downloadFile(ctx context.Context, sb *sandbox.Sandbox) error {
	file, err := sb.Files.Open(ctx, "bulk", nil)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, file)
	return errors.Join(err, file.Close(), b.complete(n))
}

func (b *bench) signedDownload(ctx context.Context, sb *sandbox.Sandbox) error {
	url, err := sb.Files.DownloadURL("bulk", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	n, err := fetch(ctx, client, http.MethodGet, url, nil)
	return errors.Join(err, b.complete(n))
}

// download and upload are the floors of the transfers: they move bulk bytes over the loopback
// interface.
func (b *bench) download(ctx context.Context, runs int) (result, error) {
	server := httptest.NewServer(answers(b.bulk))
	defer server.Close()
	return moving(b.bulk, calls(func(ctx context.Context) error {
		n, err := fetch(ctx, server.Client(), http.MethodGet, server.URL+"/bulk", nil)
		return errors.Join(err, b.complete(n))
	}))(ctx, runs)
}

func (b *bench) upload(ctx context.Context, runs int) (result, error) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	return moving(b.bulk, calls(func(ctx context.Context) error {
		_, err := fetch(ctx, server.Client(), http.MethodPost, server.URL, zeros(b.bulk))
		return err
	}))(ctx, runs)
}

// uploadToFile is the floor of a copy: a file of bulk bytes goes over the loopback interface into
// another file. The other file lies in memory, as the files of a sandbox do.
func (b *bench) uploadToFile(ctx context.Context, runs int) (result, error) {
	return withSource(b.oneFile, func(_, source string) (_ result, err error) {
		dir, err := os.MkdirTemp("/dev/shm", "bench-")
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := writeFile(filepath.Join(dir, "copy"), r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}))
		defer server.Close()
		return moving(b.bulk, calls(func(ctx context.Context) error {
			file, err := os.Open(source)
			if err != nil {
				return err
			}
			_, err = fetch(ctx, server.Client(), http.MethodPost, server.URL, file)
			return errors.Join(err, os.Remove(filepath.Join(dir, "copy")))
		}))(ctx, runs)
	})
}

func writeFile(name string, from io.Reader) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}

func (b *bench) complete(n int64) error {
	if n != b.bulk {
		return fmt.Errorf("%d of %d bytes came", n, b.bulk)
	}
	return nil
}

// answers returns a server with bulk bytes at /bulk, and one byte everywhere
// else.
func answers(bulk int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int64(1)
		if r.URL.Path == "/bulk" {
			n = bulk
		}
		_, _ = io.Copy(w, zeros(n))
	})
}

// fetch makes a request and counts the bytes of the answer.
func fetch(ctx context.Context, client *http.Client, method, url string, body io.Reader) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(response.Status))
	}
	return n, errors.Join(err, response.Body.Close())
}

type counter int64

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}

// noise returns a reader of n random bytes, the same ones each time.
func noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), n) }

// zeros returns a reader of n zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
