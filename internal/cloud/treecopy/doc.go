// Package treecopy copies files into and out of a sandbox, for builds of templates. It runs
// inside the sandbox. It needs no programs of the sandbox, because these may be missing. All paths
// are paths in the sandbox. Archives are untrusted: their files cannot change anything outside the
// target directory.
package treecopy
