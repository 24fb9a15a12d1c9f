package control

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/must"
)

// slowBody is the body of a request. It reports its first read, which the server makes once it has
// admitted the sender. The read returns when the test allows it.
type slowBody struct {
	io.Reader
	once         sync.Once
	asked, letGo chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.asked) })
	<-b.letGo
	return b.Reader.Read(p)
}

// TestAdmitted checks that the connection of a sender who may use the service stays open when
// another connection needs room. The sender shows a key, the token of a volume, or a signed
// address.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	id, token := s.createVolume(t, "v")
	expires := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	limited := connlimit.New(inner.(*net.TCPListener), connlimit.Options{Max: 1, Patience: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	server := httptest.NewUnstartedServer(connlimit.Handler(s.Service))
	must.Do(t, server.Listener.Close())
	server.Listener, server.Config.ConnContext = limited, connlimit.ConnContext
	server.Start()
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v2/sandboxes", `{"templateID":"base"}`, 201},
		{"PUT", pathVolumeContent + id + "/file?path=/a", "text", 201},
		{"PUT", pathUploads + someHash + "?expires=" + expires + "&signature=" + s.signUpload(someHash, expires), "text", 200},
	} {
		body := &slowBody{Reader: strings.NewReader(tt.body), asked: make(chan struct{}), letGo: make(chan struct{})}
		r, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+tt.path, body)
		must.Do(t, err)
		r.ContentLength = int64(len(tt.body))
		r.Header.Set("X-Api-Key", testKey)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Expect", "100-continue")
		transport := &http.Transport{ExpectContinueTimeout: time.Hour}
		done := make(chan struct{})
		go func() {
			defer close(done)
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Errorf("%s %s: %v", tt.method, tt.path, err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != tt.status {
				t.Errorf("%s %s: got %d, want %d", tt.method, tt.path, resp.StatusCode, tt.status)
			}
		}()
		<-body.asked
		other, err := net.Dial("tcp", inner.Addr().String())
		must.Do(t, err)
		if n, err := other.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s %s: another connection got %d bytes, want it closed", tt.method, tt.path, n)
		}
		close(body.letGo)
		<-done
		_ = other.Close()
		transport.CloseIdleConnections()
	}
}
