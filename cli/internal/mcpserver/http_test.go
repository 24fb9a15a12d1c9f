package mcpserver

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

const jsonHeaders = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"

// Requests that are wrong, too large or never end are refused, and the connection of one that never ends is closed.
func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.bodyPatience = time.Second
	web := httptest.NewServer(s.Handler(testToken))
	t.Cleanup(web.Close)
	host := web.Listener.Addr().String()
	known := "Authorization: Bearer " + testToken + "\r\n" + jsonHeaders
	length := func(n int) string { return "Content-Length: " + strconv.Itoa(n) + "\r\n" }
	for name, test := range map[string]struct {
		method, host, headers, body string
		want                        int
	}{
		"no token":              {"POST", host, jsonHeaders + length(len(ping)), ping, http.StatusUnauthorized},
		"wrong token":           {"POST", host, "Authorization: Bearer x\r\n" + jsonHeaders + length(len(ping)), ping, http.StatusUnauthorized},
		"page of another site":  {"POST", host, known + "Origin: http://evil.example\r\n" + length(len(ping)), ping, http.StatusForbidden},
		"name that was rebound": {"POST", "evil.example", known + length(len(ping)), ping, http.StatusForbidden},
		"unknown method":        {"PUT", host, known + length(len(ping)), ping, http.StatusMethodNotAllowed},
		"no message":            {"POST", host, known + length(1), "x", http.StatusBadRequest},
		"unknown session":       {"POST", host, known + "Mcp-Session-Id: x\r\n" + length(len(ping)), ping, http.StatusNotFound},
		"too large":             {"POST", host, known + length(MaxRequestBytes+1), strings.Repeat(" ", MaxRequestBytes+1), http.StatusRequestEntityTooLarge},
		"never ends":            {"POST", host, known + length(100), "{", http.StatusRequestTimeout},
		"never ends, no token":  {"POST", host, jsonHeaders + length(100), "{", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
			must.Do(t, err)
			defer conn.Close()
			must.Do(t, conn.SetDeadline(time.Now().Add(patience.Limit)))
			_, err = conn.Write([]byte(test.method + " /mcp HTTP/1.1\r\nHost: " + test.host + "\r\n" + test.headers + "\r\n" + test.body))
			must.Do(t, err)
			answers := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answers, nil)
			must.Do(t, err)
			resp.Body.Close()
			if resp.StatusCode != test.want {
				t.Errorf("got %s, want %d", resp.Status, test.want)
			}
		})
	}
}

// The limit of time for a request is none for its call.
func TestCallsOutlastTheLimitOfARequest(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.bodyPatience = time.Second
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := s.connectHTTP(t, version)
			if a := c.works(t, "bash", args{"command": "sleep 1.5; echo done"}); !strings.Contains(a.text, "done") {
				t.Errorf("got %q, want the answer", a.text)
			}
		})
	}
}
