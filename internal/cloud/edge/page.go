package edge

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"strings"
)

// page is an error page for a browser.
type page struct {
	Status  int
	Message string
	Reason  string // why the sandbox ended; "": unknown
	Sandbox string // "": the error is not about a sandbox
	Port    *int   // nil: the error is not about a port
	Path    string // "": the error is not about a path
	Limit   int    // maximum number of connections; 0: unknown
}

// wording contains the texts of a page. Placeholders in braces stand for sandbox, port, path
// and limit.
type wording struct{ title, text, hint string }

// wordings maps error messages to wordings. Titles and texts are the same as on the service.
var wordings = map[string]wording{
	messageNotFound: {"Sandbox Not Found", "The sandbox {sandbox} wasn't found.",
		"It has ended or is paused, or its id in the address is not right. A sandbox that was created anew has a new id."},
	messagePortClosed: {"Closed Port Error", "The sandbox {sandbox} is running but there's no service running on port {port}.",
		"Start a server on this port in the sandbox, and load this page again. It may listen on any address inside, 127.0.0.1 included."},
	messageTrafficMissing: {"Missing Traffic Access Token", `The sandbox {sandbox} enforces traffic access token. Token header "e2b-traffic-access-token" is missing.`,
		"Its ports are private: it answers programs that send the token it was created with, and no browser by itself."},
	messageTrafficInvalid: {"Invalid Traffic Access Token", `The sandbox {sandbox} enforces traffic access token. Token header "e2b-traffic-access-token" is invalid.`,
		"Its ports are private: the token must be the one that this sandbox was created with."},
	messageTooMany: {"Too Many Connections", "The sandbox {sandbox} has too many concurrent incoming connections{limit}.",
		"Close some of them, and load this page again."},
	messageReserved: {"Endpoint Not Available", "The endpoint {path} is reserved for the E2B control plane and is not reachable through the sandbox URL.", ""},
	messageNoTLS:    {"", "", "Serve HTTPS on this port, or create the sandbox without the port in httpsPorts."},
}

// pageText is the page with placeholders in braces. The package does not use html/template, because
// html/template calls methods by their names. The linker would therefore keep every method of the
// program.
//
//go:embed page.html
var pageText string

// StatusText returns the name of the status code.
func (p page) StatusText() string { return http.StatusText(p.Status) }

// Title returns the heading. An error that the service does not have gets the name of its
// status.
func (p page) Title() string { return cmp.Or(wordings[p.Message].title, p.StatusText()) }

// Text returns the description of the error.
func (p page) Text() string {
	var port, limit string
	if p.Port != nil {
		port = strconv.Itoa(*p.Port)
	}
	if p.Limit != 0 {
		limit = fmt.Sprintf(" (limit: %d)", p.Limit)
	}
	values := strings.NewReplacer("{sandbox}", p.Sandbox, "{port}", port, "{path}", p.Path, "{limit}", limit)
	return values.Replace(cmp.Or(wordings[p.Message].text, p.Message))
}

// Hint returns the remedy, or "" if Text already contains it.
func (p page) Hint() string {
	if p.Reason != "" {
		return "It ended: " + p.Reason + ". A sandbox that is created anew has a new id."
	}
	return wordings[p.Message].hint
}

// render returns the page as HTML.
func (p page) render() []byte {
	var hint, about string
	if text := p.Hint(); text != "" {
		hint = "<p>" + html.EscapeString(text) + "</p>\n"
	}
	if p.Sandbox != "" {
		about = " · sandbox " + p.Sandbox
	}
	if p.Port != nil {
		about += " · port " + strconv.Itoa(*p.Port)
	}
	values := strings.NewReplacer(
		"{title}", html.EscapeString(p.Title()), "{text}", html.EscapeString(p.Text()), "{hint}", hint,
		"{status}", html.EscapeString(fmt.Sprintf("%d %s", p.Status, p.StatusText())), "{about}", html.EscapeString(about),
	)
	return []byte(values.Replace(pageText))
}

// wantsPage reports whether a request comes from a person who uses a browser. It returns false
// for the requests of scripts in a page, because programs read JSON.
func wantsPage(r *http.Request) bool {
	h := r.Header
	browser := strings.HasPrefix(h.Get("User-Agent"), "Mozilla/") || strings.HasPrefix(h.Get("User-Agent"), "Opera/")
	mode := h.Get("Sec-Fetch-Mode")
	script := mode != "" && mode != "navigate" || h.Get("X-Requested-With") != "" || h.Get("Upgrade") != ""
	return browser && !script && !strings.Contains(strings.ToLower(strings.Join(h.Values("Accept"), ",")), "json")
}
