package hostprogram

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kind describes the form in which the value of a variable names files.
type kind int

const (
	file      kind = iota // a path or a URL
	addresses             // paths or URLs, separated by spaces
	trusted               // list of directories from which certificates are read, as in PATH
	searched              // list of directories from which programs and libraries are run, as in PATH
	caller                // the caller's directory, in which programs find their files
)

// variables lists the environment variables that may contain relative paths. Programs resolve these
// paths against their own current directory. Names are in upper case.
var variables = [...]struct {
	kind  kind
	names string // names, separated by spaces
}{
	{searched, "PATH LD_LIBRARY_PATH NODE_PATH PERL5LIB"},
	{trusted, "SSL_CERT_DIR"},
	{file, "SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO GIT_SSL_CERT GIT_SSL_KEY " +
		"NETRC TMPDIR TMP TEMP GOENV " +
		"PIP_CERT PIP_CLIENT_CERT PIP_CACHE_DIR PIP_CONFIG_FILE PIP_LOG PIP_LOG_FILE PIP_SRC PIP_SOURCE PIP_REPORT PIP_INDEX_URL PIP_PYPI_URL " +
		"NPM_CONFIG_CACHE NPM_CONFIG_CAFILE NPM_CONFIG_USERCONFIG NPM_CONFIG_GLOBALCONFIG NPM_CONFIG_PREFIX NPM_CONFIG_TMP"},
	{addresses, "PIP_FIND_LINKS PIP_EXTRA_INDEX_URL PIP_BUILD_CONSTRAINT"},
	{caller, "PWD OLDPWD INIT_CWD"},
}

// kindOf returns the kind of a variable. It returns false if the variable does not name files.
func kindOf(name string) (kind, bool) {
	for _, v := range variables {
		if slices.Contains(strings.Fields(v.names), strings.ToUpper(name)) {
			return v.kind, true
		}
	}
	return 0, false
}

// Environ returns the environment of this process for a program that runs in dir. It makes relative
// paths of files absolute, so that they still name files of the caller's directory. It leaves out
// relative directories from which programs or libraries would be run.
func Environ(dir string) []string {
	var environ []string
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		kind, known := kindOf(name)
		if !known {
			environ = append(environ, variable)
			continue
		}
		switch kind {
		case caller:
			continue
		case file:
			value = Resolve(value)
		case addresses:
			paths := strings.Fields(value)
			for i, path := range paths {
				if resolved := Resolve(path); resolved != path && strings.ContainsAny(resolved, " \t") {
					paths[i] = fileURL(resolved)
				} else {
					paths[i] = resolved
				}
			}
			value = strings.Join(paths, " ")
		case trusted:
			dirs := filepath.SplitList(value)
			for i, dir := range dirs {
				dirs[i] = Resolve(dir)
			}
			value = strings.Join(dirs, string(filepath.ListSeparator))
		case searched:
			value = strings.Join(absolute(value), string(filepath.ListSeparator))
		}
		environ = append(environ, name+"="+value)
	}
	return append(environ, "PWD="+dir)
}

// absolute returns the absolute directories in a list such as PATH.
func absolute(list string) []string {
	return slices.DeleteFunc(filepath.SplitList(list), func(dir string) bool { return !filepath.IsAbs(dir) })
}

// Resolve converts a path to a path that names the same file in any current directory. It returns a
// URL, a path that begins with ~ for the home directory, and the empty text unchanged. If the
// current directory no longer exists and the path therefore cannot be resolved, Resolve also
// returns the path unchanged.
func Resolve(path string) string {
	if rest, local := strings.CutPrefix(path, "file:"); local && rest != "" && !strings.HasPrefix(rest, "/") {
		if resolved := Resolve(rest); filepath.IsAbs(resolved) {
			return fileURL(resolved)
		}
	}
	if path == "" || strings.HasPrefix(path, "~") || IsURL(path) {
		return path
	}
	resolved, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return resolved
}

// fileURL returns the file URL of an absolute path.
func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // the path begins with a drive
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// IsURL reports whether text begins with the scheme of a URL. A single letter counts as the name of
// a drive and not as a scheme.
func IsURL(text string) bool {
	scheme, _, found := strings.Cut(text, ":")
	return found && len(scheme) > 1 && strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-") == ""
}
