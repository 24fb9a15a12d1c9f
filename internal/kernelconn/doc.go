// Package kernelconn connects a client to the kernels of one sandbox.
//
// [Kernels] records the contexts of the sandbox: the default context of each language, the contexts
// that lost their variables since the last call, and the dead contexts with their replacements. It
// opens a connection to a kernel at the first call that needs this kernel. A [Kernel] is such a
// connection. One call at a time uses a Kernel. [Kernels.Execute] waits for its turn, sets the
// environment, sends the code, and reads the messages until the execution ends. If the websocket is
// cut, Execute continues over another websocket. If the caller gives up, the code is interrupted. If the
// interrupt has no effect, the kernel is replaced.
//
// If the sandbox offers no websocket, [Kernels.ExecuteOverHTTP] sends the code to the interpreter
// instead. All requests go through a [Server], which contains the address of the sandbox.
package kernelconn
