package edge

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strings"
)

// page is an error shown to a person in a browser.
type page struct {
	Status  int
	Message string
	Sandbox string // "" when it is about none
	Port    int    // 0 when it is about none
}

// hints says what to do about an error, by its message.
var hints = map[string]string{
	messageNotFound:       "It has ended or is paused, or its id in the address is not right. A sandbox that was created anew has a new id.",
	messagePortClosed:     "Start a server on this port in the sandbox, and load this page again. It may listen on any address inside, 127.0.0.1 included.",
	messageTrafficMissing: "Its ports are private: it answers programs that send the token it was created with, and no browser by itself.",
	messageTrafficInvalid: "Its ports are private: the token must be the one that this sandbox was created with.",
	messageTooMany:        "Close some of them, and load this page again.",
	messageNoTLS:          "Serve HTTPS on this port, or create the sandbox without the port in httpsPorts.",
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// StatusText returns the name of the status.
func (p page) StatusText() string { return http.StatusText(p.Status) }

// Hint returns advice on what to do, or "" when the message says everything.
func (p page) Hint() string { return hints[p.Message] }

func (p page) render() ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}

// wantsPage reports whether a request comes from a person using a browser and
// not from a program. A script in a page counts as a program: programs read
// JSON.
func wantsPage(r *http.Request) bool {
	h := r.Header
	browser := strings.HasPrefix(h.Get("User-Agent"), "Mozilla/") || strings.HasPrefix(h.Get("User-Agent"), "Opera/")
	mode := h.Get("Sec-Fetch-Mode")
	script := mode != "" && mode != "navigate" || h.Get("X-Requested-With") != "" || h.Get("Upgrade") != ""
	return browser && !script && !strings.Contains(strings.ToLower(strings.Join(h.Values("Accept"), ",")), "json")
}
