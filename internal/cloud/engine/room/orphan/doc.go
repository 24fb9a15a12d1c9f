// Package orphan ends processes that no namespace ends: those that outlived their parents and so
// became children of a subreaper.
package orphan
