// Package treecopy copies files into and out of a sandbox, for builds of templates. It runs
// inside the sandbox, and needs no programs of the sandbox, which may be missing. Paths are
// those of the sandbox. Archives are untrusted: their files cannot change anything outside the
// target directory.
package treecopy
