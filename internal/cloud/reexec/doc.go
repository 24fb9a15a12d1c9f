// Package reexec is the hook by which a program that imports the local cloud
// becomes the agent of a sandbox when it is started as one.
package reexec
