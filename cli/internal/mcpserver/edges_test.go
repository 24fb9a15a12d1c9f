package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestInvisible checks the first and the last character of each range that people do not see, and those beside it.
func TestInvisible(t *testing.T) {
	t.Parallel()
	for r, want := range map[rune]bool{
		0xDFFFF: false, 0xE0000: true, 0xE0FFF: true, 0xE1000: false, 0x200A: false, 0x200B: true, 0x200C: false,
		0x205F: false, 0x2060: true, 0x2064: true, 0x2065: false, 0xFEFE: false, 0xFEFF: true, 0xFF00: false, 'a': false,
	} {
		if got := isInvisible(r); got != want {
			t.Errorf("%U: got %v, want %v", r, got, want)
		}
	}
	for text, want := range map[string]string{"a\r": "a", "a\rb": "b", "\ra": "a", "a\r\r\nb": "a\nb", "a\rb\r\r": "b", "a\n\rb": "a\nb"} {
		if got := plain(text); got != want {
			t.Errorf("plain(%q): got %q, want %q", text, got, want)
		}
	}
}

// TestSizesOfPictures checks the largest file that is shown as it is, and pictures that need no scaling, or in one direction alone.
func TestSizesOfPictures(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	must.Do(t, png.Encode(&file, image.NewGray(image.Rect(0, 0, 2, 2))))
	for size, same := range map[int]bool{maxPicture: true, maxPicture + 1: false} {
		content := append(bytes.Clone(file.Bytes()), make([]byte, size-file.Len())...)
		shown, kind, err := fitted(content, "image/x")
		if err != nil || bytes.Equal(shown, content) != same || (kind == "image/x") != same {
			t.Errorf("%d bytes: got %d of %s and error %v, want the file itself: %v", size, len(shown), kind, err, same)
		}
	}
	column := image.NewGray(image.Rect(5, 7, 6, 10))
	copy(column.Pix, []uint8{0, 90, 255})
	if same, ok := scaled(column, 3).(*image.Gray); !ok || same != column {
		t.Error("a picture of the right size was scaled")
	}
	small := scaled(column, 2)
	for y, want := range []uint8{30, 200} {
		if got := small.At(0, y); got != (color.RGBA{want, want, want, 255}) || small.Bounds() != image.Rect(0, 0, 1, 2) {
			t.Errorf("pixel %d of %v: got %v, want %d in each colour", y, small.Bounds(), got, want)
		}
	}
	c := newCall()
	c.attachPicture("p.png", "image/png", file.Bytes())
	if picture, ok := c.answer.media[0].(*sdk.ImageContent); !ok || picture.MIMEType != "image/png" || !bytes.Equal(picture.Data, file.Bytes()) {
		t.Errorf("got %+v, want the picture", c.answer.media[0])
	}
}

// inMemory connects a client to a server of the library.
func inMemory(t *testing.T, server *sdk.Server, version string, options *sdk.ClientOptions) *client {
	t.Helper()
	near, far := sdk.NewInMemoryTransports()
	session, err := server.Connect(t.Context(), far, nil)
	must.Do(t, err)
	c := connected(t, version, options, near)
	t.Cleanup(func() {
		must.Do(t, c.Close())
		_ = session.Wait() // its error is that of the end
	})
	return c
}

// TestAnswersOfUsers checks which answers of a client to a question mean yes.
func TestAnswersOfUsers(t *testing.T) {
	t.Parallel()
	broken := errors.New("there is no window")
	for _, version := range versions {
		for name, tt := range map[string]struct {
			answer *sdk.ElicitResult // nil and no error: the client cannot ask
			err    error
			want   string
		}{
			"accepts": {&sdk.ElicitResult{Action: "accept"}, nil, "yes"}, "declines": {&sdk.ElicitResult{Action: "decline"}, nil, "no"},
			"cancels": {&sdk.ElicitResult{Action: "cancel"}, nil, "no"}, "fails": {nil, broken, "no"}, "cannot ask": {nil, nil, "no"},
		} {
			s, err := New(Config{})
			must.Do(t, err)
			e := &endpoint{Server: s}
			server := s.endpoint(true)
			server.AddTool(&sdk.Tool{Name: "ask", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return e.answered(ctx, req, func(ctx context.Context, ask question) *sdk.CallToolResult {
					word := map[bool]string{true: "yes", false: "no"}[ask(ctx, "May I?")]
					return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: word}}}
				})
			})
			options := &sdk.ClientOptions{}
			if tt.answer != nil || tt.err != nil {
				options.ElicitationHandler = func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					if req.Params.Message != "May I?" {
						t.Errorf("%s, %s: was asked %q", name, version, req.Params.Message)
					}
					return tt.answer, tt.err
				}
			}
			result, err := inMemory(t, server, version, options).CallTool(patience.Context(t), &sdk.CallToolParams{Name: "ask"})
			// A client of the newer protocol that cannot answer does not repeat its call.
			if err != nil && (tt.err == nil || version < roundTrips) {
				t.Errorf("%s, %s: got error %v", name, version, err)
			}
			if err == nil && pieces(result).notes != tt.want {
				t.Errorf("%s, %s: got %q, want %q", name, version, pieces(result).notes, tt.want)
			}
			must.Do(t, s.Close())
		}
	}
}

// TestIntroduction checks how a server introduces itself, its tools and its outputs.
func TestIntroduction(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Version: "7"})
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	c := inMemory(t, s.endpoint(true), versions[0], nil)
	got := c.InitializeResult()
	if diff := cmp.Diff(&sdk.Implementation{Name: "e2bctl", Title: "Sandboxes", Version: "7"}, got.ServerInfo); diff != "" || got.Instructions != s.instructions(true) {
		t.Errorf("got the instructions %q, and the server (-want +got):\n%s", got.Instructions, diff)
	}
	var capabilities map[string]any
	text, err := json.Marshal(got.Capabilities)
	must.Do(t, errors.Join(err, json.Unmarshal(text, &capabilities)))
	if names := slices.Sorted(maps.Keys(capabilities)); !slices.Equal(names, []string{"resources", "tools"}) {
		t.Errorf("got the capabilities %q, want tools and resources alone", names)
	}
	tools, err := c.ListTools(t.Context(), nil)
	must.Do(t, err)
	if len(tools.Tools) != len(s.tools) {
		t.Errorf("got %d tools, want %d", len(tools.Tools), len(s.tools))
	}
	for _, tool := range tools.Tools {
		if tool.OutputSchema != nil || tool.InputSchema == nil {
			t.Errorf("%s: want the schema of the arguments, and none of the output", tool.Name)
		}
		if tool.Annotations == nil || tool.Annotations.Title == "" || tool.Description == "" {
			t.Errorf("got %+v, want a title and a description", tool)
		}
	}
	templates, err := c.ListResourceTemplates(t.Context(), nil)
	must.Do(t, err)
	want := &sdk.ResourceTemplate{
		Name: "output", Title: "Whole outputs", URITemplate: outputPrefix + "{id}/{name}",
		Description: "What did not fit into the answer of a tool, by the link in that answer. The newest 64 MiB are kept.",
	}
	if diff := cmp.Diff([]*sdk.ResourceTemplate{want}, templates.ResourceTemplates); diff != "" {
		t.Errorf("templates (-want +got):\n%s", diff)
	}
	for _, name := range []string{"a.txt", "a b", "ü.png", "a(1).png", "a+b", "a/b?c#d%20{e}", "-._~,;"} {
		link := s.outputs.keep(name, "text/plain", []byte("kept"))
		read, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
		if err != nil || read.Contents[0].Text != "kept" || link.Name != name {
			t.Errorf("%q: got %+v and error %v, want what was kept", name, read, err)
		}
	}
	must.Do(t, s.Close())
	if err := c.Ping(patience.Context(t), nil); err == nil {
		t.Error("a session goes on after the end of its server")
	}
}

// TestRefusedSessions checks the answer to a client for which there is no room, and that no other request is refused.
func TestRefusedSessions(t *testing.T) {
	t.Parallel()
	served := 0
	for limit, want := range map[int]int{0: http.StatusServiceUnavailable, 1: http.StatusOK} {
		s, err := New(Config{})
		must.Do(t, err)
		handler := newSessions(s.endpoint(true), limit).handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		for _, id := range []string{"", "", "unknown"} { // the first request ended before the second
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
			r.Header.Set(sessionHeader, id)
			wanted := want
			if id != "" {
				wanted = http.StatusOK
			}
			handler.ServeHTTP(w, r)
			refused := wanted != http.StatusOK
			if w.Code != wanted || (w.Header().Get("Retry-After") == "10") != refused || strings.Contains(w.Body.String(), "too many sessions") != refused {
				t.Errorf("limit %d, session %q: got status %d with %v and %q, want %d", limit, id, w.Code, w.Header(), w.Body, wanted)
			}
		}
		must.Do(t, s.Close())
	}
	if served != 4 {
		t.Errorf("%d requests were served, want 4", served)
	}
}

// TestAdmitted checks that the connection of a request that is served makes no room for another.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	web := httptest.NewUnstartedServer(connlimit.Handler(admitted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-goOn
		_, _ = io.WriteString(w, "answer")
	}))))
	web.Listener = connlimit.New(web.Listener.(*net.TCPListener), connlimit.Options{Max: 1, Patience: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	web.Config.ConnContext = connlimit.ConnContext
	web.Start()
	defer web.Close()
	get := func() (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := clienttest.New(t).Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}
	first := make(chan string, 1)
	go func() {
		text, err := get()
		first <- fmt.Sprint(text, err)
	}()
	patience.Receive(t, "the request", begun)
	if text, err := get(); err == nil {
		t.Errorf("another connection: got %q, want no room", text)
	}
	close(goOn)
	if got := patience.Receive(t, "the answer", first); got != "answer<nil>" {
		t.Errorf("the connection in use: got %s, want its answer", got)
	}
}

// TestServersConnectEarly checks that a server connects to the service when it begins to serve, once.
func TestServersConnectEarly(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*Server){
		"over HTTP": func(s *Server) { s.Handler("token") },
		"over a pipe": func(s *Server) {
			_ = s.Serve(t.Context(), io.NopCloser(strings.NewReader("")), nopWriteCloser{io.Discard}) // its client has gone
		},
	} {
		opened := make(chan struct{}, 10)
		s, err := New(Config{Open: func(context.Context) (*sandbox.Client, error) {
			opened <- struct{}{}
			return nil, errors.ErrUnsupported
		}})
		must.Do(t, err)
		begin(s)
		begin(s)
		patience.Receive(t, name+", a connection", opened)
		if must.Do(t, s.Close()); len(opened) > 0 {
			t.Errorf("%s: the server connected again", name)
		}
	}
}
