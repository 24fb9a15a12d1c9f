package pip

import (
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// The tokens of a marker. Strings contain no characters with a meaning for a
// shell.
var (
	markerToken    = lazyregexp.New(`^ *(\(|\)|===|==|~=|!=|<=|>=|<|>|'[A-Za-z0-9_., +*-]*'|"[A-Za-z0-9_., +*-]*"|[a-z_.]+)`)
	markerOperator = lazyregexp.New(`^(?:===|==|~=|!=|<=|>=|<|>|in)$`)
	markerVariable = lazyregexp.New(`^(?:python_version|python_full_version|os_name|sys_platform|platform_release|platform_system|` +
		`platform_version|platform_machine|platform_python_implementation|implementation_name|implementation_version|extra)$`)
)

// checkMarker returns the reason why text is not a marker of PEP 508, or "" if it is a marker.
func checkMarker(text string) string {
	m := markerReader{rest: text}
	m.next()
	if m.alternatives(); m.reason == "" && m.token != "" {
		m.fail("and, or, or the end")
	}
	return m.reason
}

// markerReader reads a marker by recursive descent. The depth of the recursion is bounded, because
// requirements are short.
type markerReader struct {
	rest   string
	token  string // the token that is read; "" at the end
	reason string // the first error; "" if there is none
}

func (m *markerReader) next() {
	m.token = ""
	if match := markerToken().FindStringSubmatch(m.rest); match != nil {
		m.token, m.rest = match[1], m.rest[len(match[0]):]
	} else {
		m.token = strings.Trim(m.rest, " ") // matches no token
	}
}

func (m *markerReader) fail(want string) {
	if m.reason != "" {
		return
	}
	if m.token == "" {
		m.reason = fmt.Sprintf("it ends where %s is expected", want)
		return
	}
	m.reason = fmt.Sprintf("%q stands where %s is expected", clip.Text(m.token, 64), want)
}

func (m *markerReader) alternatives() {
	m.conjunction()
	for m.reason == "" && m.token == "or" {
		m.next()
		m.conjunction()
	}
}

func (m *markerReader) conjunction() {
	m.comparison()
	for m.reason == "" && m.token == "and" {
		m.next()
		m.comparison()
	}
}

func (m *markerReader) comparison() {
	if m.token == "(" {
		m.next()
		m.alternatives()
		if m.token != ")" {
			m.fail("a closing parenthesis")
		}
		m.next()
		return
	}
	m.operand()
	if m.token == "not" {
		if m.next(); m.token != "in" {
			m.fail(`in (of "not in")`)
		}
	}
	if !markerOperator().MatchString(m.token) {
		m.fail("a comparison")
	}
	m.next()
	m.operand()
}

func (m *markerReader) operand() {
	text := strings.HasPrefix(m.token, "'") || strings.HasPrefix(m.token, `"`)
	if len(m.token) < 2 || !text && !markerVariable().MatchString(m.token) {
		m.fail(`a variable such as python_version or a "string"`)
	}
	m.next()
}
