// Package edge finds the sandbox and the port that a request is for, by Host or
// by header, and carries the request there.
package edge
