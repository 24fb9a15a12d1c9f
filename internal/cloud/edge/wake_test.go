package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestWhoWakes checks that a request wakes a paused sandbox if it has the token for its port,
// except the kinds of requests that never wake a sandbox.
func TestWhoWakes(t *testing.T) {
	t.Parallel()
	signed := func(operation, expiration string) string {
		s := "/files?path=/a.txt&signature=" + sign("/a.txt:"+operation+"::"+token, expiration)
		if expiration != "" {
			s += "&signature_expiration=" + expiration
		}
		return s
	}
	const late, past = "4102444800", "946684800"
	tests := []struct {
		name, method, path, port, access, traffic string
		header                                    map[string]string
		status                                    int
		message                                   string
	}{
		{name: "right token", port: "49983", access: token, status: 200},
		{name: "no token", port: "49983", status: 403, message: messageAsleep},
		{name: "wrong token", port: "49983", access: "nope", status: 403, message: messageAsleep},
		{name: "signed URL", path: signed("read", ""), port: "49983", status: 200},
		{name: "signed URL that names no sandbox", path: signed("read", late), status: 200},
		{name: "signed URL for writing", method: "POST", path: signed("write", late), port: "49983", status: 200},
		{name: "signed URL for something else", method: "POST", path: signed("read", late), port: "49983", status: 403, message: messageAsleep},
		{name: "expired URL", path: signed("read", past), port: "49983", status: 403, message: messageAsleep},
		{name: "expired URL that names no sandbox", path: signed("read", past), status: 403, message: messageAsleep},
		{name: "signature elsewhere", path: strings.Replace(signed("read", late), "/files", "/other", 1), port: "49983", status: 403, message: messageAsleep},
		{name: "private port", port: "3000", traffic: traffic, status: 200},
		{name: "private port without token", port: "3000", access: token, status: 403, message: messageTrafficMissing},
		{name: "private port with a wrong token", port: "3000", traffic: "nope", status: 403, message: messageTrafficInvalid},
		{name: "interpreter", method: "POST", port: "49999", traffic: traffic, status: 200},
		{name: "health", path: "/health", port: "49983", access: token, status: 502, message: messageNotFound},
		{name: "health of a user's server", path: "/health", port: "3000", traffic: traffic, status: 200},
		{name: "preflight", method: "OPTIONS", port: "3000", traffic: traffic, header: map[string]string{"Access-Control-Request-Method": "POST"}, status: 502, message: messageNotFound},
		{name: "OPTIONS of a program", method: "OPTIONS", port: "3000", traffic: traffic, status: 200},
		{name: "reserved", method: "POST", path: "/init", port: "49983", access: token, status: 404, message: messageReserved},
		{name: "TRACE", method: "TRACE", port: "49983", access: token, status: 405, message: messageMethod},
	}
	for _, tt := range tests {
		for _, added := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, added %v", tt.name, added), func(t *testing.T) {
				t.Parallel()
				c := start(t)
				server := serveCounted(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				sb := Sandbox{ID: id, AccessToken: token, TrafficToken: traffic, Dial: server.dial}
				woken := 0
				c.options.Wake = func(_ context.Context, got string) error {
					if woken++; got != id {
						t.Errorf("got %q woken, want %q", got, id)
					}
					if !added {
						c.Add(sb)
					}
					c.Resume(id)
					return nil
				}
				c.options.Asleep = func(asked string) []Sandbox {
					if added || asked != "" && asked != id {
						return nil
					}
					return []Sandbox{{ID: "other", AccessToken: "another"}, {ID: id, AccessToken: token, TrafficToken: traffic}}[min(len(asked), 1):]
				}
				if added {
					c.Add(sb)
					c.Pause(id)
				}
				header := map[string]string{}
				if tt.port != "" {
					header = by(id, tt.port)
				}
				for name, value := range map[string]string{protocol.HeaderAccess: tt.access, protocol.HeaderTraffic: tt.traffic} {
					if value != "" {
						header[name] = value
					}
				}
				maps.Copy(header, tt.header)
				resp, body := c.do(t, ask{method: cmp.Or(tt.method, "GET"), path: tt.path, header: header})
				if resp.StatusCode != tt.status || !strings.Contains(body, tt.message) {
					t.Errorf("got %d %s, want %d and %q", resp.StatusCode, body, tt.status, tt.message)
				}
				if want := tt.status == 200; (woken == 1) != want || woken > 1 {
					t.Errorf("got woken %d times, want %v", woken, want)
				}
				u := c.lookup(id)
				if awake := u != nil && u.spell() != nil; awake != (tt.status == 200) {
					t.Errorf("got awake %v, want %v", awake, tt.status == 200)
				}
			})
		}
	}
}

// TestWakeFails checks that the errors of Wake have the service's answers. A sandbox that requests
// do not resume has the same answer as one that does not exist.
func TestWakeFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		wake func(context.Context, string) error
		want string
	}{
		{"none", nil, "502 " + messageNotFound},
		{"asleep", refuseWake(ErrAsleep), "502 " + messageNotFound},
		{"busy", refuseWake(ErrBusy), "409 " + messageBusy},
		{"limit", refuseWake(ErrLimit), "429 " + messageLimit},
		{"broken", refuseWake(errors.New("no memory left")), "503 " + messageNoWake},
		{"paused again", func(context.Context, string) error { return nil }, "409 " + messageBusy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			wakes := 0
			if tt.wake != nil {
				c.options.Wake = func(ctx context.Context, id string) error { wakes++; return tt.wake(ctx, id) }
			}
			c.Add(Sandbox{ID: id})
			c.Pause(id)
			resp, body := c.do(t, ask{method: "POST", body: strings.NewReader("body"), header: by(id, "3000")})
			status, message, _ := strings.Cut(tt.want, " ")
			want := fmt.Sprintf(`{"sandboxId":"%s","message":"%s","code":%s}`, id, message, status)
			if fmt.Sprint(resp.StatusCode) != status || body != want {
				t.Errorf("got %d %s, want %s %s", resp.StatusCode, body, status, want)
			}
			if want := map[string]int{"none": 0, "paused again": 3}; tt.wake != nil && wakes != max(want[tt.name], 1) {
				t.Errorf("got woken %d times, want %d", wakes, max(want[tt.name], 1))
			}
			if after := resp.Header.Get("Retry-After"); after != "" {
				t.Errorf("got Retry-After %q, want none", after)
			}
		})
	}
}

// TestWokenSandboxIsFull checks that a request that has woken a sandbox counts among the requests of
// the woken sandbox, and is refused if that has too many.
func TestWokenSandboxIsFull(t *testing.T) {
	t.Parallel()
	for others, want := range map[int64]int{maxRequests - 1: 200, maxRequests: 429} {
		c := start(t)
		server := serveCounted(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c.options.Wake = func(context.Context, string) error {
			c.Add(Sandbox{ID: id, TrafficToken: traffic, Dial: server.dial})
			c.Resume(id)
			c.lookup(id).admissions[toPrograms].inFlight.Store(others)
			return nil
		}
		c.options.Asleep = func(string) []Sandbox { return []Sandbox{{ID: id, TrafficToken: traffic}} }
		header := by(id, "3000")
		header[protocol.HeaderTraffic] = traffic
		if resp, body := c.do(t, ask{method: "GET", header: header}); resp.StatusCode != want {
			t.Errorf("beside %d requests: got %d %s, want %d", others, resp.StatusCode, body, want)
		}
		if u := c.lookup(id); u != nil {
			u.admissions[toPrograms].inFlight.Add(-others)
		}
	}
}
