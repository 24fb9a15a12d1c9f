package edge

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFrames checks which frames of a websocket carry a message, wherever the stream is cut.
func TestFrames(t *testing.T) {
	t.Parallel()
	mask, long := "\x01\x02\x03\x04", strings.Repeat("x", 70_000)
	for name, tt := range map[string]struct {
		frames  []string
		message bool
	}{
		"ping":              {[]string{"\x89\x00"}, false},
		"masked ping":       {[]string{"\x89\x84" + mask + "ping"}, false},
		"pong and ping":     {[]string{"\x8a\x02ab", "\x89\x80" + mask}, false},
		"close":             {[]string{"\x88\x02\x03\xe8"}, false},
		"text":              {[]string{"\x81\x01a"}, true},
		"empty text":        {[]string{"\x81\x00"}, true},
		"masked binary":     {[]string{"\x82\x81" + mask + "a"}, true},
		"ping then text":    {[]string{"\x89\x00", "\x81\x01a"}, true},
		"text of 16 bits":   {[]string{"\x81\x7e\x01\x00" + long[:256], "\x89\x00"}, true},
		"text of 64 bits":   {[]string{"\x81\x7f\x00\x00\x00\x00\x00\x01\x11\x70" + long, "\x89\x00"}, true},
		"rest of a message": {[]string{"\x00\x01a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := strings.Join(tt.frames, "")
			for _, cut := range []int{1, 3, 7, len(stream)} {
				f, got := new(frames), false
				for piece := range slices.Chunk([]byte(stream), cut) {
					got = f.carry(piece) || got
				}
				if got != tt.message || f.left != 0 || f.have != 0 {
					t.Errorf("cut at %d: got %v, %d bytes left and %d of a header, want %v", cut, got, f.left, f.have, tt.message)
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
