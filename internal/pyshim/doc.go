// Package pyshim embeds the Python modules that the SDK installs in a kernel.
//
// They need only Python 3.9 and its standard library, and add no name to the
// user's namespace: they are module objects in sys.modules, put there by
// [Install] and called in user expressions.
package pyshim
