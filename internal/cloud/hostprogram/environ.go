package hostprogram

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kind says how the value of a variable names files.
type kind int

const (
	file      kind = iota // one path, or URL
	addresses             // paths or URLs, separated by spaces
	trusted               // directories that certificates are read from, as in PATH
	searched              // directories that programs and libraries are run from, as in PATH
	caller                // the caller's directory, by which programs find its files
)

// variables are those whose relative paths programs resolve against their own current
// directory, by their names in upper case.
var variables = map[string]kind{
	"PATH": searched, "LD_LIBRARY_PATH": searched, "NODE_PATH": searched, "PERL5LIB": searched,

	"SSL_CERT_FILE": file, "SSL_CERT_DIR": trusted, "REQUESTS_CA_BUNDLE": file, "CURL_CA_BUNDLE": file,
	"NODE_EXTRA_CA_CERTS": file, "GIT_SSL_CAINFO": file, "GIT_SSL_CERT": file, "GIT_SSL_KEY": file,
	"NETRC": file, "TMPDIR": file, "TMP": file, "TEMP": file, "GOENV": file,

	"PIP_CERT": file, "PIP_CLIENT_CERT": file, "PIP_CACHE_DIR": file, "PIP_CONFIG_FILE": file, "PIP_LOG": file, "PIP_LOG_FILE": file,
	"PIP_SRC": file, "PIP_SOURCE": file, "PIP_BUILD_CONSTRAINT": addresses, "PIP_REPORT": file,
	"PIP_FIND_LINKS": addresses, "PIP_INDEX_URL": file, "PIP_PYPI_URL": file, "PIP_EXTRA_INDEX_URL": addresses,

	"NPM_CONFIG_CACHE": file, "NPM_CONFIG_CAFILE": file, "NPM_CONFIG_USERCONFIG": file, "NPM_CONFIG_GLOBALCONFIG": file,
	"NPM_CONFIG_PREFIX": file, "NPM_CONFIG_TMP": file,

	"PWD": caller, "OLDPWD": caller, "INIT_CWD": caller,
}

// Environ returns the environment of this process for a program that runs in dir. Files
// that it names by relative paths stay those of the caller's directory. Relative
// directories from which programs or libraries would be run are left out.
func Environ(dir string) []string {
	var environ []string
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		kind, known := variables[strings.ToUpper(name)]
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

// absolute returns the absolute directories of a list such as PATH.
func absolute(list string) []string {
	return slices.DeleteFunc(filepath.SplitList(list), func(dir string) bool { return !filepath.IsAbs(dir) })
}

// Resolve returns path as one that means the same in any current directory. A URL, a path
// that begins with the home directory's ~ and the empty text are unchanged, and so is
// what cannot be resolved because the current directory is gone.
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

// fileURL returns the URL of an absolute path.
func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // it begins with a drive
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// IsURL reports whether text begins with the scheme of a URL. A single letter is a drive.
func IsURL(text string) bool {
	scheme, _, found := strings.Cut(text, ":")
	return found && len(scheme) > 1 && !strings.ContainsFunc(scheme, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '-')
	})
}
