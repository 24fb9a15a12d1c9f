// Package pyshim embeds the Python modules that the SDK places in a kernel.
package pyshim
