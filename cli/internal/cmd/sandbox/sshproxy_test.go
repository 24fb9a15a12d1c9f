package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// wire passes on what is written to it. It has room, because both sides of a connection of ssh begin by writing.
type wire struct {
	parts chan []byte
	rest  []byte
	once  sync.Once
}

func newWire() *wire { return &wire{parts: make(chan []byte, 1000)} }

func (w *wire) Write(p []byte) (int, error) {
	w.parts <- bytes.Clone(p)
	return len(p), nil
}

func (w *wire) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		part, isOpen := <-w.parts
		if !isOpen {
			return 0, io.EOF
		}
		w.rest = part
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.parts) })
	return nil
}

// nearEnd is the end of two wires that belongs to the client of ssh. Its addresses are those of the Conn.
type nearEnd struct {
	net.Conn
	from, to *wire
}

func (n nearEnd) Read(p []byte) (int, error)  { return n.from.Read(p) }
func (n nearEnd) Write(p []byte) (int, error) { return n.to.Write(p) }
func (n nearEnd) Close() error                { return n.to.Close() }

// sshClient returns how a client of this user connects.
func sshClient(t *testing.T) *ssh.ClientConfig {
	t.Helper()
	state := t.TempDir()
	must.Do(t, os.Chmod(state, 0o700))
	t.Setenv("XDG_STATE_HOME", state)
	keys, err := sshKeys()
	must.Do(t, err)
	text, err := os.ReadFile(keys.ClientFile)
	must.Do(t, err)
	signer, err := ssh.ParsePrivateKey(text)
	must.Do(t, err)
	return &ssh.ClientConfig{User: "user", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(keys.Host.PublicKey())}
}

// TestSSHProxy checks the ends of a connection of ssh: the client goes, the command is interrupted, or the sandbox has ended.
// The command asks about that from time to time, and at once when a request to the sandbox has failed.
func TestSSHProxy(t *testing.T) {
	config := sshClient(t)
	fails := func(t *testing.T, client *ssh.Client, gone bool) {
		t.Helper()
		session, err := client.NewSession()
		must.Do(t, err)
		var errs bytes.Buffer
		session.Stderr = &errs
		err = session.Run("work")
		if gone && errs.Len() == 0 { // the connection has ended before the message
			return
		}
		if err == nil || !strings.Contains(errs.String(), "no such thing") || strings.Contains(errs.String(), "\x1b") {
			t.Errorf("a command that cannot start: got error %v and the message %q", err, &errs)
		}
	}
	for name, tt := range map[string]struct {
		fails bool          // a request to the sandbox
		gone  bool          // the service knows no such sandbox any longer
		stays time.Duration // the client
		stops time.Duration // the command is interrupted; 0: it is not
		is    error
		took  time.Duration
	}{
		"the client goes":        {},
		"the client goes later":  {stays: time.Hour, took: time.Hour},
		"it is interrupted":      {stays: time.Hour, stops: time.Minute, took: time.Minute},
		"the sandbox has ended":  {stays: time.Hour, gone: true, is: sandbox.ErrGone, took: askEvery},
		"that breaks a request":  {stays: time.Hour, gone: true, fails: true, is: sandbox.ErrGone},
		"a request alone fails":  {stays: time.Minute, fails: true, took: time.Minute},
		"it is interrupted soon": {stays: time.Hour, fails: true, stops: time.Second, took: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			killed := 0
			open := opened(t, func(w http.ResponseWriter, r *http.Request) {
				switch isConnect := strings.HasSuffix(r.URL.Path, "/connect"); {
				case r.Method == http.MethodDelete:
					killed++
				case isConnect, r.Method == http.MethodGet && !tt.gone:
					w.WriteHeader(map[bool]int{true: http.StatusCreated, false: http.StatusOK}[isConnect])
					_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13","envdAccessToken":"x","state":"running"}`)
				default:
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"code":404,"message":"no such thing\u001b[2J"}`)
				}
			})
			to, from := newWire(), newWire()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			ended := make(chan error, 1)
			go func() {
				err := sshProxyRun(ctx, &sshProxyOptions{IO: cmdutil.NewIOStreams(to, from, nil), Open: open, ID: "i1"})
				_ = from.Close() // as at the end of the process
				ended <- err
			}()
			pipe, _ := net.Pipe()
			conn, channels, requests, err := ssh.NewClientConn(nearEnd{pipe, from, to}, "sandbox", config)
			must.Do(t, err)
			client := ssh.NewClient(conn, channels, requests)
			begun := time.Now()
			if tt.fails {
				fails(t, client, tt.gone)
			}
			defer time.AfterFunc(tt.stays, func() { _ = to.Close() }).Stop()
			if tt.stops > 0 {
				defer time.AfterFunc(tt.stops, interrupt).Stop()
			}
			err = <-ended
			if took := time.Since(begun); !errors.Is(err, tt.is) || (err == nil) != (tt.is == nil) || took != tt.took || killed > 0 {
				t.Errorf("%s: got error %v after %v and %d kills, want %v after %v", name, err, took, killed, tt.is, tt.took)
			}
			must.Do(t, errors.Join(to.Close(), from.Close()))
			_ = client.Close() // its connection is closed already
		})
	}
}

// TestSSHProxyThatDoesNotBegin checks the errors before a client of ssh is served.
func TestSSHProxyThatDoesNotBegin(t *testing.T) {
	sshClient(t)
	refused := errors.New("refused")
	opts := &sshProxyOptions{IO: cmdutil.NewIOStreams(strings.NewReader("no ssh\n"), io.Discard, nil), ID: "i1"}
	opts.Open = func(context.Context) (*cmdutil.Connection, error) { return nil, refused }
	must.Is(t, sshProxyRun(t.Context(), opts), refused)
	opts.Open = opened(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	must.Is(t, sshProxyRun(t.Context(), opts), sandbox.ErrGone)
	opts.Open = opened(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13"}`)
	})
	if err := sshProxyRun(t.Context(), opts); err == nil || !strings.HasPrefix(err.Error(), "the handshake of the ssh client: ") {
		t.Errorf("a client that does not speak ssh: got error %v", err)
	}
	t.Setenv("XDG_STATE_HOME", os.DevNull+"/none")
	if err := sshProxyRun(t.Context(), opts); err == nil || !strings.HasPrefix(err.Error(), "finding a directory for the keys of ssh: ") {
		t.Errorf("without a directory: got error %v", err)
	}
}
