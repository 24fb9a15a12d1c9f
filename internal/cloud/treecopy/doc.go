// Package treecopy copies files into and out of a sandbox, for builds of templates. It runs
// inside the sandbox and needs none of its programs, which may be missing. Paths are those
// of the sandbox. Archives are not trusted: their files change nothing outside the target
// directory.
package treecopy
