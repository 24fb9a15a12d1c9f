package edge

import (
	"mime"
	"net/http"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// rules are the edge's changes to the headers of an answer.
type rules int

const (
	unchanged rules = iota // for the API, and for hosts that name a sandbox
	varied                 // for requests routed by headers: caches must know these headers
	confined               // for signed URLs at the shared address
)

// confinement is the policy for documents from a signed URL at the shared address. That address
// belongs to the API and to every sandbox: without the policy, a page from one sandbox would
// have the origin, the cookies and the service workers of all of them. It must never have
// allow-same-origin. There is no exception for any content type, because the sender of the type
// is hostile.
const confinement = "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups allow-popups-to-escape-sandbox"

// passed are the only headers that a confined answer may have from a sandbox, besides its
// Content-Type.
var passed = []string{
	"Content-Length", "Content-Encoding", "Content-Range", "Content-Disposition", "Accept-Ranges",
	"Last-Modified", "ETag", "Vary", "Date",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age",
}

// enforce returns a ResponseWriter whose answer follows the rules, no matter who writes it:
// envd, a program in its place, or the edge itself.
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

// FlushError flushes the written bytes, for [http.ResponseController].
func (w *sealed) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// begin sends the header of an answer without an explicit status.
func (w *sealed) begin() {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
}

// apart is a ResponseWriter whose handlers set headers in a map of their own. seal moves some of
// them to the answer, once, so trailers cannot get there. It sends nothing before the final
// answer, since an early hint has headers, too.
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

// confine makes the header of a confined answer from the header that its handler set.
func confine(answer, given http.Header) {
	for _, name := range passed {
		key := http.CanonicalHeaderKey(name)
		if values, ok := given[key]; ok {
			answer[key] = values
		}
	}
	answer["Content-Type"] = nil // otherwise the server guesses one
	if kinds := given["Content-Type"]; len(kinds) > 0 {
		answer.Set("Content-Type", singleType(kinds[0]))
	}
	answer.Set("Content-Security-Policy", confinement)
	answer.Set("X-Content-Type-Options", "nosniff")
}

// singleType returns a Content-Type, or application/octet-stream in place of two kinds of
// values: a list of types, because browsers take the last one, and a type whose content has
// headers of its own, which could set cookies.
func singleType(kind string) string {
	if media, _, err := mime.ParseMediaType(kind); err != nil || media == "multipart/x-mixed-replace" {
		return "application/octet-stream"
	}
	return kind
}

// redirects reports whether an answer of this status may send a client elsewhere.
func redirects(status int) bool {
	return status >= 300 && status < 400 && status != http.StatusNotModified
}

// isPreflight reports whether a request is a browser's question, before a page's request,
// whether the page may send it.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// routingHeaders are the headers that route a request at the shared address.
const routingHeaders = protocol.HeaderSandboxID + ", " + protocol.HeaderSandboxPort

// withheld are the headers that no page may add to a request for a signed URL: those that route
// a request, those that authorize it, and the wildcard for every header.
var withheld = map[string]bool{
	protocol.HeaderSandboxID: true, protocol.HeaderSandboxPort: true,
	protocol.HeaderAccess: true, protocol.HeaderTraffic: true, protocol.HeaderAPIKey: true,
	"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "*": true,
}

// answerPreflight allows pages of every origin to use a signed URL, as envd does: anyone with
// the URL may use it. They may not add the withheld headers.
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
