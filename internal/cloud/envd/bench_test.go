//go:build linux

package envd

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
)

func benchServe(b *testing.B) (url string, client *http.Client) {
	b.Helper()
	a, err := New(Options{
		Users: []User{{Name: "me", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: b.TempDir()}},
		Path:  "/usr/bin:/bin",
	})
	must.Do(b, err)
	server := httptest.NewServer(a.Handler())
	transport := &http.Transport{DisableCompression: true}
	b.Cleanup(func() {
		a.Close()
		transport.CloseIdleConnections()
		server.Close()
	})
	return server.URL, &http.Client{Transport: transport}
}

// BenchmarkRun measures a whole command, from the call to its end.
func BenchmarkRun(b *testing.B) {
	url, client := benchServe(b)
	processes := processconnect.NewProcessClient(client, url)
	for b.Loop() {
		s, err := processes.Start(b.Context(), connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "echo", Args: []string{"hi"}}}))
		must.Do(b, err)
		for s.Receive() {
		}
		must.Do(b, s.Err())
		s.Close()
	}
}

// BenchmarkOutput measures how fast a process can write output, in MB/s.
func BenchmarkOutput(b *testing.B) {
	const size = 256 << 20
	url, client := benchServe(b)
	processes := processconnect.NewProcessClient(client, url)
	b.SetBytes(size)
	for b.Loop() {
		s, err := processes.Start(b.Context(), connect.NewRequest(&process.StartRequest{
			Process: &process.ProcessConfig{Cmd: "head", Args: []string{"-c", fmt.Sprint(size), "/dev/zero"}},
		}))
		must.Do(b, err)
		n := 0
		for s.Receive() {
			n += len(s.Msg().GetEvent().GetData().GetStdout())
		}
		if s.Err() != nil || n != size {
			b.Fatalf("%d bytes, %v, want %d and no error", n, s.Err(), size)
		}
		s.Close()
	}
}

func BenchmarkUpload(b *testing.B) {
	const size = 64 << 20
	url, client := benchServe(b)
	body := bytes.Repeat([]byte("x"), size)
	b.SetBytes(size)
	for n := 0; b.Loop(); n++ {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, fmt.Sprintf("%s/files?path=%d", url, n%4), bytes.NewReader(body))
		must.Do(b, err)
		req.Header.Set("Content-Type", "application/octet-stream")
		res, err := client.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatalf("got %v, %v, want status http.StatusOK and no error", res, err)
		}
		res.Body.Close()
	}
}
