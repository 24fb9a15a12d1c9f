// Package sandbox runs code and commands in E2B-style cloud sandboxes.
package sandbox
