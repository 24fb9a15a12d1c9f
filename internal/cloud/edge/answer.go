package edge

import (
	"mime"
	"net/http"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// rules say what the edge does to the headers of an answer.
type rules int

const (
	unchanged rules = iota // for the API, and for hosts that name a sandbox
	varied                 // for requests that headers route: caches must know these headers
	confined               // for signed URLs at the shared address
)

// confinement is the policy of what a signed URL at the shared address shows. That address is
// the API's, and that of every sandbox: without the policy, a page from one sandbox would have
// the origin, the cookies and the service workers of all of them. It must never have
// allow-same-origin. There is no exception for any type, because what sent the type is hostile.
const confinement = "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups allow-popups-to-escape-sandbox"

// passed are the only headers that a confined answer may have from a sandbox, besides its
// Content-Type.
var passed = []string{
	"Content-Length", "Content-Encoding", "Content-Range", "Content-Disposition", "Accept-Ranges",
	"Last-Modified", "ETag", "Vary", "Date",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age",
}

// enforce returns a ResponseWriter whose answer follows the rules, whoever writes it: envd, a
// program that took its place, or the edge itself.
func (of rules) enforce(w http.ResponseWriter) http.ResponseWriter {
	switch of {
	case varied:
		return &sealed{ResponseWriter: w, seal: func() { w.Header().Add("Vary", routingHeaders) }}
	case confined:
		given := http.Header{}
		return &apart{sealed{ResponseWriter: w, seal: func() { confine(w.Header(), given) }}, given}
	}
	return w
}

// sealed is a ResponseWriter that calls seal before the header of the final answer is sent.
type sealed struct {
	http.ResponseWriter
	seal  func()
	begun bool
}

func (w *sealed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *sealed) WriteHeader(status int) {
	if status >= http.StatusOK && !w.begun {
		w.begun = true
		w.seal()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *sealed) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// FlushError flushes what was written, as [http.ResponseController] has it.
func (w *sealed) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// begin sends the header of an answer to which nobody gave a status.
func (w *sealed) begin() {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
}

// apart is a ResponseWriter whose handlers set headers in a map of their own: only seal moves
// some to the answer, once, so that trailers have no way to it. It sends nothing before the
// final answer, since a hint that comes early has headers, too.
type apart struct {
	sealed
	header http.Header
}

func (w *apart) Header() http.Header { return w.header }

func (w *apart) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.sealed.WriteHeader(status)
	}
}

// confine makes the header of a confined answer out of what its handler set.
func confine(answer, given http.Header) {
	for _, name := range passed {
		key := http.CanonicalHeaderKey(name)
		if values, ok := given[key]; ok {
			answer[key] = values
		}
	}
	answer["Content-Type"] = nil // without which the server would guess one
	if kinds := given["Content-Type"]; len(kinds) > 0 {
		answer.Set("Content-Type", singleType(kinds[0]))
	}
	answer.Set("Content-Security-Policy", confinement)
	answer.Set("X-Content-Type-Options", "nosniff")
}

// singleType returns a Content-Type, or that of bytes of any kind in its place: if it is not
// one type, because browsers take the last of several, or if it is one whose content has
// headers of its own, which could set cookies.
func singleType(kind string) string {
	if media, _, err := mime.ParseMediaType(kind); err != nil || media == "multipart/x-mixed-replace" {
		return "application/octet-stream"
	}
	return kind
}

// redirects reports whether an answer of this status may lead a client elsewhere.
func redirects(status int) bool {
	return status >= 300 && status < 400 && status != http.StatusNotModified
}

// isPreflight reports whether a browser asks, before a request of a page, whether the page may
// send it.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// routingHeaders are the headers that route a request at the shared address.
const routingHeaders = protocol.HeaderSandboxID + ", " + protocol.HeaderSandboxPort

// withheld are the headers that no page may add to a request for a signed URL: those that route
// a request, those that authorize it, and the name that stands for every header.
var withheld = map[string]bool{
	protocol.HeaderSandboxID: true, protocol.HeaderSandboxPort: true,
	protocol.HeaderAccess: true, protocol.HeaderTraffic: true, protocol.HeaderAPIKey: true,
	"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "*": true,
}

// answerPreflight lets pages of every origin use a signed URL, as envd does: who has the URL may
// use it. They may not add the withheld headers.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
	var names []string
	for _, list := range r.Header.Values("Access-Control-Request-Headers") {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" && !withheld[http.CanonicalHeaderKey(name)] {
				names = append(names, name)
			}
		}
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Access-Control-Allow-Methods", "GET, POST")
	if len(names) > 0 {
		header.Set("Access-Control-Allow-Headers", strings.Join(names, ", "))
	}
	header.Set("Access-Control-Max-Age", "7200")
	header.Set("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
	w.WriteHeader(http.StatusNoContent)
}
