// Package kernelconn connects a client to the kernels of one sandbox.
//
// [Kernels] knows the contexts of the sandbox: which is the default of its language,
// which lost its variables since the last call, and which is dead and replaced by
// another. It opens a connection to a kernel at the first call that needs one. A
// [Kernel] is that connection. It carries one call at a time: [Kernels.Execute] waits
// for its turn, sets the environment, sends the code and follows the messages until
// the end, over another websocket if the first is cut. Code that is given up is
// interrupted, and if that is of no use its kernel is replaced.
//
// Where the sandbox has no websocket, [Kernels.ExecuteOverHTTP] sends the code to the
// interpreter instead. Everything goes through a [Server], which knows where the sandbox
// is.
package kernelconn
