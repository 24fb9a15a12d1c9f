// Package python finds or makes the Python environment that sandboxes run.
package python
