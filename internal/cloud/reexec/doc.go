// Package reexec makes a re-executed program that imports the local cloud a process of a
// sandbox. Package inside does most of this. This package serves envd, the interpreter and
// Jupyter in the sandbox's process of envd.
package reexec
