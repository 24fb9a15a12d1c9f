// Package treecopy copies files into and out of a sandbox, for builds of templates. It runs
// inside of the sandbox, whose programs it does not need: there may be none. Paths are those
// of the sandbox, and what is in archives is foreign, which changes nothing outside of the
// directory that it is copied to.
package treecopy
