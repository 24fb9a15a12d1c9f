// Package reexec is the hook by which a program that imports the local cloud becomes
// what it is re-executed as. Package inside does most of it; this one serves envd, the
// interpreter and Jupyter in the envd of a sandbox.
package reexec
