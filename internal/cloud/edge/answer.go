package edge

import (
	"mime"
	"net/http"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// rules decide how the edge changes the headers of an answer.
type rules int

const (
	unchanged rules = iota // for the API, and for hosts that name a sandbox
	varied                 // for requests that are routed by headers; the answer lists these headers for caches
	confined               // for signed URLs at the shared address; see confinement
)

// confinement is the content security policy for documents from a signed URL at the shared
// address. This address belongs to the API and to every sandbox. Without the policy, a page
// from one sandbox would have the origin, the cookies and the service workers of all of them.
// The policy must never contain allow-same-origin. No content type is exempt, because the
// sandbox chooses the type and is hostile.
const confinement = "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups allow-popups-to-escape-sandbox"

// passed lists the only headers, besides Content-Type, that a confined answer may have from a
// sandbox.
var passed = []string{
	"Content-Length", "Content-Encoding", "Content-Range", "Content-Disposition", "Accept-Ranges",
	"Last-Modified", "ETag", "Vary", "Date",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age",
}

// enforce returns a ResponseWriter whose answer follows the rules, whoever writes the answer:
// envd, another program on its port, or the edge itself.
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

// sealed is a ResponseWriter that calls seal before it sends the header of the final answer.
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

// apart is a ResponseWriter that gives its handler a separate map of headers. seal copies some
// of these headers to the answer. It does so only once, so that it copies no trailer. apart sends
// only the final answer. It sends no answer with a status below 200, because an early hint has
// headers, too.
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

// confine sets the header of a confined answer. given is the header that the handler set.
func confine(answer, given http.Header) {
	for _, name := range passed {
		key := http.CanonicalHeaderKey(name)
		if values, ok := given[key]; ok {
			answer[key] = values
		}
	}
	answer["Content-Type"] = nil // otherwise the server guesses a type
	if kinds := given["Content-Type"]; len(kinds) > 0 {
		answer.Set("Content-Type", singleType(kinds[0]))
	}
	answer.Set("Content-Security-Policy", confinement)
	answer.Set("X-Content-Type-Options", "nosniff")
}

// singleType returns a Content-Type. It replaces two kinds of values by application/octet-stream:
// a list of types, because browsers use the last type; and a type whose content includes headers,
// because those headers could set cookies.
func singleType(kind string) string {
	if media, _, err := mime.ParseMediaType(kind); err != nil || media == "multipart/x-mixed-replace" {
		return "application/octet-stream"
	}
	return kind
}

// redirects reports whether an answer with this status may redirect a client.
func redirects(status int) bool {
	return status >= 300 && status < 400 && status != http.StatusNotModified
}

// isPreflight reports whether a request is a browser's CORS preflight request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// routingHeaders are the headers that route a request to the shared address.
const routingHeaders = protocol.HeaderSandboxID + ", " + protocol.HeaderSandboxPort

// withheld lists the headers that a page must not add to a request for a signed URL: the headers
// that route or authorize a request, and *, the wildcard for all headers.
var withheld = map[string]bool{
	protocol.HeaderSandboxID: true, protocol.HeaderSandboxPort: true,
	protocol.HeaderAccess: true, protocol.HeaderTraffic: true, protocol.HeaderAPIKey: true,
	"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "*": true,
}

// answerPreflight allows pages of every origin to use a signed URL, as envd does, because
// anyone with the URL may use it. It does not allow the withheld headers.
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
