// Package kernelconn connects a client to the kernels of one sandbox.
//
// [Kernels] knows the contexts of the sandbox: the default of each language, the
// contexts that lost their variables since the last call, and the dead ones with their
// replacements. It opens a connection to a kernel at the first call that needs one. A
// [Kernel] is that connection. It carries one call at a time: [Kernels.Execute] waits
// for its turn, sets the environment, sends the code and follows the messages until the
// end, over another websocket if the first is cut. Code that is given up is interrupted,
// and if that has no effect its kernel is replaced.
//
// If the sandbox has no websocket, [Kernels.ExecuteOverHTTP] sends the code to the
// interpreter instead. All requests go through a [Server], which knows the address of
// the sandbox.
package kernelconn
