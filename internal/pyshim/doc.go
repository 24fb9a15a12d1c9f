// Package pyshim embeds the Python modules that the SDK places in a kernel.
//
// They need Python 3.9 and its standard library alone, and leave no name in the
// user's namespace: they are module objects in sys.modules, placed there by
// [Install] and called in user expressions.
package pyshim
