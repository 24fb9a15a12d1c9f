// Package reexec is the hook by which a re-executed program that imports the local
// cloud becomes a process of a sandbox. Package inside does most of it; this one
// serves envd, the interpreter and Jupyter in the envd of a sandbox.
package reexec
