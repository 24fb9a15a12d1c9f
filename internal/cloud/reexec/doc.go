// Package reexec turns a program into a process of a sandbox. The program imports the local cloud,
// and was executed again for this purpose. Package inside does most of this work. This package
// serves envd, the interpreter and Jupyter in the envd process of the sandbox.
package reexec
