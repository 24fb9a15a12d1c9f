// Package pyshim embeds the Python modules that the SDK installs in a kernel.
//
// The modules need only Python 3.9 and its standard library. They add no name to the user's
// namespace, because they are module objects in sys.modules. The code of [Install] adds them to
// sys.modules. The SDK calls their functions in user expressions.
package pyshim
