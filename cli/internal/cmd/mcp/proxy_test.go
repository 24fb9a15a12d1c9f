package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/mcpserver"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Each proxy gets the variables that are named for it, with the values of this process, and no others.
func TestVariablesOfProxies(t *testing.T) {
	t.Setenv("E2BCTL_TEST_FIRST", "1=2")
	t.Setenv("E2BCTL_TEST_EMPTY", "")
	const bad = "want the name of a proxy and of a variable"
	var all proxyVariables
	for _, tt := range []struct{ text, err string }{
		{"a:E2BCTL_TEST_FIRST", ""}, {"b:E2BCTL_TEST_EMPTY", ""}, {"a:E2BCTL_TEST_EMPTY", ""},
		{"a:A=B", bad}, {"a:", bad}, {":A", bad}, {"a", bad}, {"", bad},
	} {
		if err := all.Set(tt.text); (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%q: got error %v, want %q", tt.text, err, tt.err)
		}
	}
	for name, tt := range map[string]struct {
		variables proxyVariables
		want      []mcpserver.Proxy
		err       string
	}{
		"none": {nil, []mcpserver.Proxy{{Name: "a"}, {Name: "b"}, {Name: "c"}}, ""},
		"some": {all, []mcpserver.Proxy{
			{Name: "a", Env: []string{"E2BCTL_TEST_FIRST=1=2", "E2BCTL_TEST_EMPTY="}}, {Name: "b", Env: []string{"E2BCTL_TEST_EMPTY="}}, {Name: "c"},
		}, ""},
		"of no proxy": {proxyVariables{{"d", "E2BCTL_TEST_FIRST"}}, nil, "--proxy-env d:E2BCTL_TEST_FIRST: there is no --proxy d"},
		"not set":     {proxyVariables{{"c", "E2BCTL_TEST_NONE"}}, nil, "--proxy-env c:E2BCTL_TEST_NONE: the variable is not set"},
	} {
		got, err := proxies{{Name: "a"}, {Name: "b"}, {Name: "c"}}.resolved(tt.variables)
		if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s: got error %v, want %q", name, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The audit goes on in its file. Only the default one makes room when it is large, and one older file is kept.
func TestAuditFile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size           int64
		isNamed, moved bool
	}{
		"a new one":                {-1, false, false},
		"as large as it may be":    {maxAudit, false, false},
		"larger":                   {maxAudit + 1, false, true},
		"larger and named by path": {maxAudit + 1, true, false},
	} {
		dir := t.TempDir()
		path, given := filepath.Join(dir, "audit.jsonl"), ""
		must.Do(t, os.WriteFile(path+".1", []byte("older"), 0o600))
		if tt.size >= 0 {
			must.Do(t, os.WriteFile(path, nil, 0o600))
			must.Do(t, os.Truncate(path, tt.size))
		}
		if tt.isNamed {
			given = path
		}
		file, err := openAudit(given, identity{path: filepath.Join(dir, "identity.json")})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = io.WriteString(file, "x")
		must.Do(t, err)
		must.Do(t, file.Close())
		info, err := os.Stat(path)
		must.Do(t, err)
		before, err := os.Stat(path + ".1")
		must.Do(t, err)
		want, wantBefore := max(tt.size, 0)+1, int64(len("older"))
		if tt.moved {
			want, wantBefore = 1, tt.size
		}
		if info.Size() != want || before.Size() != wantBefore {
			t.Errorf("%s: got %d bytes and %d in the older file, want %d and %d", name, info.Size(), before.Size(), want, wantBefore)
		}
	}
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "audit.jsonl.1", "x"), 0o700)) // which nothing can replace
	must.Do(t, os.WriteFile(filepath.Join(dir, "audit.jsonl"), nil, 0o600))
	must.Do(t, os.Truncate(filepath.Join(dir, "audit.jsonl"), maxAudit+1))
	if file, err := openAudit("", identity{path: filepath.Join(dir, "identity.json")}); err == nil {
		t.Errorf("got %v, want the error of the file that cannot be moved", file.Close())
	}
}

// Only ports of this machine are served.
func TestAddressOfHTTP(t *testing.T) {
	t.Parallel()
	const noAddress, noLoopback = "want an IP address and a port", "only this machine may connect"
	for address, want := range map[string]string{
		"127.0.0.1:8930": "", "127.9.9.9:0": "", "[::1]:8930": "",
		"localhost:8930": noAddress, ":8930": noAddress, "127.0.0.1": noAddress, "": noAddress,
		"0.0.0.0:8930": noLoopback, "[::]:8930": noLoopback, "192.0.2.1:8930": noLoopback,
	} {
		if err := checkAddress(address); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", address, err, want)
		}
	}
}

// The end of the context ends a server whose client still holds its input open, and the command reports it.
func TestEndOfStdio(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"the end of the context": errors.New("the end"), "the end of the input": nil} {
		server, err := mcpserver.New(mcpserver.Config{Open: func(context.Context) (*sandbox.Client, error) { return nil, errors.New("no service") }})
		must.Do(t, err)
		in, keyboard := io.Pipe()
		var out, said bytes.Buffer
		ctx, end := context.WithCancelCause(patience.Context(t))
		ended := make(chan error, 1)
		go func() {
			ended <- serveStdio(ctx, &options{IO: &cmdutil.IOStreams{In: in, Out: &out}, Progress: &said}, server)
		}()
		if cause == nil {
			must.Do(t, keyboard.Close())
		} else {
			end(cause)
		}
		if err := patience.Receive(t, name, ended); !errors.Is(err, cause) {
			t.Errorf("%s: got error %v, want %v", name, err, cause)
		}
		if out.Len() > 0 || said.Len() > 0 {
			t.Errorf("%s: wrote %q and said %q, want nothing to a client that sent nothing", name, out.String(), said.String())
		}
		end(nil)
		_ = keyboard.Close()
		must.Do(t, server.Close())
	}
}

// The server can ask for the descriptor of an output that has one.
func TestDescriptorOfOutput(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must.Do(t, err)
	defer file.Close()
	var _ syscall.Conn = nopCloser{}
	conn, err := nopCloser{file}.SyscallConn()
	if err != nil || conn == nil {
		t.Errorf("got error %v of a file, want its descriptor", err)
	}
	_, err = nopCloser{new(bytes.Buffer)}.SyscallConn()
	must.Is(t, err, errors.ErrUnsupported)
	must.Do(t, nopCloser{file}.Close())
	if _, err := file.WriteString("x"); err != nil {
		t.Errorf("the end of the server closed the output: %v", err)
	}
}

// An address where nothing can listen is reported.
func TestHTTPAddressOfNobody(t *testing.T) {
	t.Parallel()
	ctx := patience.Context(t)
	o := &options{factory: &cmdutil.Factory{}, IO: &cmdutil.IOStreams{Err: io.Discard}, HTTP: "192.0.2.1:1"}
	if err := serveHTTP(ctx, o, nil, identity{}); err == nil || ctx.Err() != nil {
		t.Errorf("got error %v, want that nothing can listen there", err)
	}
}
