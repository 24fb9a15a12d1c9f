package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestFrames checks which frames of a websocket carry a message, wherever the stream is cut.
func TestFrames(t *testing.T) {
	t.Parallel()
	mask, long := "\x01\x02\x03\x04", strings.Repeat("x", 70_000)
	for name, all := range map[string][]string{
		"ping":              {"\x89\x00"},
		"masked ping":       {"\x89\x84" + mask + "ping"},
		"pong and ping":     {"\x8a\x02ab", "\x89\x80" + mask},
		"close":             {"\x88\x02\x03\xe8"},
		"text":              {"\x81\x01a"},
		"empty text":        {"\x81\x00"},
		"masked binary":     {"\x82\x81" + mask + "a"},
		"ping then text":    {"\x89\x00", "\x81\x01a"},
		"text of 16 bits":   {"\x81\x7e\x01\x00" + long[:256], "\x89\x00"},
		"text of 64 bits":   {"\x81\x7f\x00\x00\x00\x00\x00\x01\x11\x70" + long, "\x89\x00"},
		"rest of a message": {"\x00\x01a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := []byte(strings.Join(all, ""))
			var message []bool // whether each byte belongs to a message
			for _, frame := range all {
				message = append(message, slices.Repeat([]bool{frame[0]&0x8 == 0}, len(frame))...)
			}
			for _, cut := range []int{1, 3, 7, len(stream)} {
				f := new(frames)
				for at := 0; at < len(stream); at += cut {
					end := min(at+cut, len(stream))
					if got, want := f.carry(stream[at:end]), slices.Contains(message[at:end], true); got != want {
						t.Errorf("cut at %d: the bytes from %d to %d count as a message: %v, want %v", cut, at, end, got, want)
					}
				}
				if f.left != 0 || f.have != 0 {
					t.Errorf("cut at %d: %d bytes left and %d of a header", cut, f.left, f.have)
				}
				if f.carry([]byte("\x89\x00")) {
					t.Errorf("cut at %d: a ping after it counts as a message", cut)
				}
			}
		})
	}
}

// TestKeepalive checks that the messages with which envd keeps silent streams open are recognised, and
// output is not.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	silent := &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
	output := &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("x")}}}}
	for name, tt := range map[string]struct {
		message proto.Message
		want    bool
	}{
		"start":   {&process.StartResponse{Event: silent}, true},
		"connect": {&process.ConnectResponse{Event: silent}, true},
		"watch":   {&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}, true},
		"input":   {&process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}}, true},
		"output":  {&process.StartResponse{Event: output}, false},
	} {
		raw, err := proto.Marshal(tt.message)
		must.Do(t, err)
		if got := isKeepalive(append([]byte{0, 0, 0, 0, byte(len(raw))}, raw...)); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
	for text, want := range map[string]bool{`{"event":{"keepalive":{}}}`: true, `{"keepalive": {}}`: true, `{"filesystem":{"name":"\"keepalive\""}}`: false} {
		if got := isKeepalive(append([]byte{0, 0, 0, 0, byte(len(text))}, text...)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// pieces is a body that arrives in these pieces.
type pieces []string

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	*p = (*p)[1:]
	return n, nil
}

// TestUsesOfABody checks that each piece of a request or an answer is a use of the sandbox, unless it
// is a keepalive message, and which bodies are noted at all.
func TestUsesOfABody(t *testing.T) {
	t.Parallel()
	parts := func() io.ReadCloser { return io.NopCloser(&pieces{"one", processKeepalive, "", "two", otherKeepalive}) }
	uses := 0
	u := &upstream{Sandbox: Sandbox{Use: func() { uses++ }}}
	for name, tt := range map[string]struct {
		u        *upstream
		body     io.ReadCloser
		port     int
		uses     int
		unnoted  bool
		switches bool
	}{
		"two pieces":               {u: u, body: parts(), port: 3000, uses: 2},
		"no body":                  {u: u, body: http.NoBody, port: 3000},
		"nobody wants to know":     {u: &upstream{}, body: parts(), port: 3000, unnoted: true},
		"health of envd":           {u: u, body: parts(), port: protocol.PortEnvd, unnoted: true},
		"an answer of other bytes": {u: u, body: parts(), port: 3000, uses: 2, switches: true},
	} {
		uses = 0
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a"+healthPath, tt.body)
		must.Do(t, err)
		noted, use := tt.u.noted(r, tt.port)
		if (use == nil) != tt.unnoted || (noted == r) != (tt.unnoted || tt.body == http.NoBody) {
			t.Errorf("%s: got %v, the same request %v, want it noted: %v", name, use != nil, noted == r, !tt.unnoted)
		}
		before := uses
		_, err = io.Copy(io.Discard, noted.Body)
		if got := uses - before; err != nil || got != tt.uses || (before == 1) == tt.unnoted {
			t.Errorf("%s: %d uses at the begin and %d by pieces, want %d by pieces", name, before, got, tt.uses)
		}
		res := &http.Response{StatusCode: http.StatusOK, Body: tt.body}
		if tt.body != http.NoBody {
			res.Body = parts()
		}
		if tt.switches {
			res.StatusCode = http.StatusSwitchingProtocols
		}
		uses = 0
		(&target{use: use}).noteAnswer(res)
		_, err = io.Copy(io.Discard, res.Body)
		if want := map[bool]int{false: tt.uses}[tt.switches]; err != nil || uses != want {
			t.Errorf("%s: the answer has %d uses, want %d", name, uses, want)
		}
	}
	if conn := (&net.TCPConn{}); (&target{}).noteConn(conn, http.Header{}) != conn {
		t.Error("a connection is noted though nobody wants to know")
	}
	if err := (&notedConn{Conn: &openedConn{}}).CloseWrite(); err == nil {
		t.Error("a connection that has no half to close was closed for writing")
	}
}

// TestUses checks which requests are a use of a sandbox.
func TestUses(t *testing.T) {
	t.Parallel()
	const id, token = "iused", "token"
	c := start(t)
	var uses atomic.Int64
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		conn, stream, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, stream) // an echo
	}
	ports := map[int]http.HandlerFunc{3000: answer, protocol.PortEnvd: answer, protocol.PortInterpreter: answer}
	c.Add(Sandbox{ID: id, AccessToken: token, Dial: serve(t, ports), Use: func() { uses.Add(1) }})
	for name, tt := range map[string]struct {
		method, path string
		port         int
		token        string
		want         bool
	}{
		"a port":                    {"GET", "/health", 3000, "", true},
		"a call of envd":            {"POST", "/process.Process/List", protocol.PortEnvd, token, true},
		"envd without the token":    {"POST", "/process.Process/List", protocol.PortEnvd, "", false},
		"health of envd":            {"GET", "/health", protocol.PortEnvd, token, false},
		"metrics of envd":           {"GET", "/metrics", protocol.PortEnvd, token, false},
		"health of the interpreter": {"GET", "/health", protocol.PortInterpreter, "", false},
		"code":                      {"POST", "/execute", protocol.PortInterpreter, "", true},
	} {
		uses.Store(0)
		r, err := http.NewRequestWithContext(t.Context(), tt.method, c.url+tt.path, http.NoBody)
		must.Do(t, err)
		r.Host = fmt.Sprintf("%d-%s.localhost", tt.port, id)
		r.Header.Set(protocol.HeaderAccess, tt.token)
		res, err := clienttest.New(t).Do(r)
		must.Do(t, err)
		must.Do(t, res.Body.Close())
		if tt.want {
			patience.Until(t, name+": the begin and the end", func() bool { return uses.Load() >= 2 })
		} else if n := uses.Load(); n != 0 {
			t.Errorf("%s: %d uses, want none", name, n)
		}
	}

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(c.url, "http://"))
	must.Do(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 3000-%s.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id)
	must.Do(t, err)
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, nil)
	must.Do(t, err)
	defer res.Body.Close()
	echo := func(frame string) int64 { // the echo has passed, so both directions are counted
		uses.Store(0)
		_, err := io.WriteString(conn, frame)
		must.Do(t, err)
		_, err = io.ReadFull(reader, make([]byte, len(frame)))
		must.Do(t, err)
		return uses.Load()
	}
	if n := echo("\x89\x00"); n != 0 {
		t.Errorf("a ping and its echo: %d uses, want none", n)
	}
	if n := echo("\x81\x01a"); n != 2 {
		t.Errorf("a message and its echo: %d uses, want 2", n)
	}
}
