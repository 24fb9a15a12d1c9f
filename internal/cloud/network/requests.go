package network

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Methods lists the methods of requests that can be sent to hosts with rules for headers or requests.
// TRACE is not included, because a host answers TRACE with the received request, and this request may
// contain a secret. A host may answer an unknown method, such as TRACK, in the same way.
var Methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// Bounds of rules for requests.
const (
	maxRequests    = 50 // for one host
	maxRequestPath = 512
)

// Bounds of the path of a request to a host with rules for requests.
const (
	maxSentPath = 8 << 10
	maxReadings = 64
)

// Request describes requests that a sandbox may send to a host. Its field names are part of the stored
// format.
type Request struct {
	Methods []string `json:",omitempty"` // empty: any of [Methods]; GET includes HEAD
	// Path is a pattern of the whole path: "*" matches any characters except a slash, and "**" matches
	// any characters. "" means every path. Queries are not matched.
	Path string `json:",omitempty"`
}

// request is a Request after validation.
type request struct {
	methods []string
	path    *regexp.Regexp
}

// ruleRequests is the rule that denies connections that do not show requests to a host with rules for
// requests.
const ruleRequests = "the rules allow some requests to it, so only https on port 443 reaches it"

// WithRequests returns the same rules with the requests that a sandbox may send to hosts. Hosts have the
// form of [Rules.WithHeaders]. A host with requests is allowed, and every request that does not match one
// of them is refused. r must deny all traffic, because a program could otherwise reach the host by its
// address. It must not allow all addresses or all names, because a name of anybody's may have the address
// of the host. If a rule is invalid, the error is a [*RuleError].
func (r *Rules) WithRequests(asked map[string][]Request) (*Rules, error) {
	if len(asked) == 0 {
		return r, nil
	}
	found := map[string][]request{}
	for _, entry := range slices.Sorted(maps.Keys(asked)) {
		host := normalize(entry)
		_, twice := found[host]
		switch {
		case len(asked) > maxHeaderHosts:
			return nil, &RuleError{"rules", entry, fmt.Sprintf("there are %d hosts, and %d is the limit", len(asked), maxHeaderHosts)}
		case twice:
			return nil, &RuleError{"rules", entry, "it is there twice: upper and lower case are the same"}
		case peerEntry(host):
			return nil, &RuleError{"rules", entry, "requests to other sandboxes cannot be restricted"}
		case !r.DenyAll():
			return nil, &RuleError{"rules", entry, "requests need denyOut to have " + allTraffic + ": otherwise programs reach the host by its address"}
		case r.allowsAll():
			return nil, &RuleError{"rules", entry, "requests need allowOut to have neither " + allTraffic + " nor *: otherwise programs reach the host by its address, or by another name"}
		case len(asked[entry]) == 0:
			return nil, &RuleError{"rules", entry, "its list of requests is empty: name one, or leave the host out of allowOut"}
		case len(asked[entry]) > maxRequests:
			return nil, &RuleError{"rules", entry, fmt.Sprintf("there are %d requests, and %d is the limit", len(asked[entry]), maxRequests)}
		}
		if err := checkHeaderHost(entry, host); err != nil {
			return nil, err
		}
		for _, one := range asked[entry] {
			parsed, why := one.parse()
			if why != "" {
				return nil, &RuleError{"rules", entry, why}
			}
			found[host] = append(found[host], parsed)
		}
	}
	with := *r
	with.requests = found
	return &with, nil
}

// allowsAll reports whether r allows all addresses or all names.
func (r *Rules) allowsAll() bool {
	return slices.Contains(r.names, "*") || slices.ContainsFunc(r.allow, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// parse validates a request. If it is invalid, why is the reason.
func (q Request) parse() (parsed request, why string) {
	parsed.methods = q.Methods
	for _, method := range q.Methods {
		if !slices.Contains(Methods, method) {
			return request{}, fmt.Sprintf("%.32q is not one of the methods %s", method, strings.Join(Methods, ", "))
		}
	}
	if slices.Contains(q.Methods, http.MethodGet) {
		parsed.methods = append(slices.Clone(q.Methods), http.MethodHead)
	}
	pattern := q.Path
	if pattern == "" {
		pattern = "/**"
	}
	switch {
	case len(pattern) > maxRequestPath:
		return request{}, fmt.Sprintf("a path has %d bytes, and %d is the limit", len(pattern), maxRequestPath)
	case !strings.HasPrefix(pattern, "/"):
		return request{}, fmt.Sprintf("the path %.100q does not begin with a slash", pattern)
	case strings.ContainsAny(pattern, `?#%;\`) || !printable(pattern):
		return request{}, fmt.Sprintf("the path %.100q has a character that no path pattern has: queries are not matched, and names are written as they are, not percent-encoded", pattern)
	case cleaned(pattern) != pattern:
		return request{}, fmt.Sprintf("the path %.100q is not in normal form: want %.100q", pattern, cleaned(pattern))
	}
	parsed.path = compile(pattern)
	return parsed, ""
}

// compile returns the regular expression of a path pattern.
func compile(pattern string) *regexp.Regexp {
	var expression strings.Builder
	expression.WriteString(`(?s)\A`)
	for rest := pattern; rest != ""; {
		text, after, star := strings.Cut(rest, "*")
		expression.WriteString(regexp.QuoteMeta(text))
		rest = after
		switch deep := strings.TrimLeft(rest, "*"); {
		case !star:
		case deep != rest:
			expression.WriteString(".*")
			rest = deep
		default:
			expression.WriteString("[^/]*")
		}
	}
	return regexp.MustCompile(expression.String() + `\z`)
}

// Limited reports whether r has rules for requests to a name.
func (r *Rules) Limited(name string) bool {
	_, found := byHost(r.requestRules(), name)
	return found
}

func (r *Rules) requestRules() map[string][]request {
	if r == nil {
		return nil
	}
	return r.requests
}

// Opens reports whether TLS to a host ends at the cloud, because of rules for headers or requests.
func (r *Rules) Opens(host string) bool { return len(r.Headers(host)) > 0 || r.Limited(host) }

// overrides lists headers with which some servers replace the method or the path of a request.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url"}

// overriding returns the name of a header in overrides, as it was sent. It returns "" if there is none.
// Servers that pass headers to programs as variables, as CGI and WSGI do, read an underscore as a hyphen.
func overriding(headers http.Header) string {
	for name := range headers {
		if slices.Contains(overrides, http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
			return name
		}
	}
	return ""
}

// RefuseRequest returns the reason if the rules for requests to a host do not allow a request. It returns
// "" if they allow it, or if there are none. A path that servers read in several ways is allowed only if
// each of these readings is allowed, see readPath.
func (r *Rules) RefuseRequest(host string, q *http.Request) string {
	rules, found := byHost(r.requestRules(), host)
	if !found {
		return ""
	}
	if name := overriding(q.Header); name != "" {
		return fmt.Sprintf("the header %.64s could replace the method or the path that the rules allow", name)
	}
	readings, why := readPath(q.URL)
	if why != "" {
		return why
	}
	for _, reading := range readings {
		if !slices.ContainsFunc(rules, func(one request) bool {
			return (len(one.methods) == 0 || slices.Contains(one.methods, q.Method)) && one.path.MatchString(reading)
		}) {
			return fmt.Sprintf("the rules for this host do not allow %s %.200s", q.Method, reading)
		}
	}
	return ""
}

// readPath returns the paths that servers may read in a URL. If servers could read something else, why is
// the reason.
func readPath(u *url.URL) (readings []string, why string) {
	escaped := u.EscapedPath()
	switch {
	case u.Opaque != "" || !strings.HasPrefix(escaped, "/"):
		return nil, "the path of the request does not begin with a slash"
	case len(escaped) > maxSentPath:
		return nil, fmt.Sprintf("the path of the request has more than %d bytes", maxSentPath)
	}
	// An encoded slash stays as it is, which no pattern without ** matches.
	whole, err := url.PathUnescape(strings.NewReplacer("%2F", "%252F", "%2f", "%252F").Replace(escaped))
	if err != nil {
		return nil, "the path of the request is malformed"
	}
	if slashed := slashesDecoded(whole); strings.ContainsAny(slashed, `%\`) || !printable(slashed) {
		return nil, "servers read the path of the request in different ways: it has a percent sign, a backslash, a control character, or bytes that are not UTF-8"
	}
	// Servers take these steps in different orders, and some leave out some of them. No step makes a path
	// longer, so this ends.
	readings = []string{whole}
	for i := 0; i < len(readings); i++ {
		for _, step := range []func(string) string{slashesDecoded, slashesMerged, dotsResolved, withoutParameters, withoutQuery} {
			if next := step(readings[i]); !slices.Contains(readings, next) {
				readings = append(readings, next)
			}
		}
		if len(readings) > maxReadings {
			return nil, "servers read the path of the request in too many different ways"
		}
	}
	return readings, ""
}

// slashesDecoded decodes the encoded slashes in a path.
func slashesDecoded(text string) string { return strings.ReplaceAll(text, "%2F", "/") }

// slashesMerged replaces each run of slashes by one slash.
func slashesMerged(text string) string {
	for strings.Contains(text, "//") {
		text = strings.ReplaceAll(text, "//", "/")
	}
	return text
}

// dotsResolved resolves the segments "." and ".." of a path. Unlike in [cleaned], and as in RFC 3986, the
// text between doubled slashes is a segment, which ".." removes.
func dotsResolved(text string) string {
	segments := strings.Split(text, "/")
	kept := segments[:1:1] // "", before the first slash
	for i, segment := range segments[1:] {
		switch segment {
		case "..":
			kept = kept[:max(len(kept)-1, 1)]
		case ".":
		default:
			kept = append(kept, segment)
			continue
		}
		if i == len(segments)-2 { // a slash stays at the end
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}

// withoutParameters removes the text after a semicolon in each segment of a path.
func withoutParameters(text string) string {
	segments := strings.Split(text, "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return strings.Join(segments, "/")
}

// withoutQuery removes the query and the fragment that a server finds in a path if it reads the path
// again after decoding.
func withoutQuery(text string) string {
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		return text[:i]
	}
	return text
}

// cleaned returns a path with resolved dots and without doubled slashes. A slash at the end stays.
func cleaned(text string) string {
	clean := path.Clean(text)
	if clean != "/" && (strings.HasSuffix(text, "/") || strings.HasSuffix(text, "/.") || strings.HasSuffix(text, "/..")) {
		clean += "/"
	}
	return clean
}

// printable reports whether a text is UTF-8 without control characters.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
