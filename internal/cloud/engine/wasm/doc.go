// Package wasm is the engine that runs Python in WebAssembly: Pyodide, in Deno, in a room.
//
// A sandbox of this engine is a sandbox of the room, with the same files, limits, pauses and
// snapshots. Only Deno is started in it. So code is behind three walls: WebAssembly, the
// permissions of Deno, and the room's namespaces, limits and filter of system calls. The walls of
// the room do not depend on Deno: code that breaks out of Deno is an ordinary process of a sandbox,
// with the id of the sandbox's user.
//
// # Processes
//
// In the server: this package. It adds the paths of Deno and Pyodide to the configuration of a
// sandbox ([guest.Wasm]), and starts the sandbox in the room. It refuses ports, and lists the
// missing features in its report.
//
// In the sandbox: envd with files, interpreter and Jupyter, as with every engine (package reexec).
// envd refuses to start processes, with an error that names this engine. For each context, envd
// starts one Deno process. Package kernel uses Deno like any other driver.
//
// In Deno: two threads. The main thread reads lines and does nothing else. The worker runs Python.
// The worker returns to its event loop only while an asyncio loop waits, because WebAssembly is
// suspended then (wasmenv/deno). Python is restored from a snapshot of its memory. In the snapshot
// the driver is already loaded (_e2bctl_kernel/wasm.py), so nothing is compiled or imported at the
// start.
//
// # Permissions
//
// Deno may read its own directory. It may read and write the directories that are visible to
// Python: the home of the user, the directory for temporary files, /code, mounts and volumes. Deno
// may do nothing else: it has no network, no environment, no processes, no libraries, and runs no
// code that it fetches. In Python, these directories have their usual paths. At all other paths,
// Python has its own files in memory. Links cannot be made in these directories, because Deno would
// have to trust the targets of the links.
//
// # The channel
//
// The worker writes lines of JSON to standard output, as in the driver's protocol: output, results,
// errors, questions. The main thread passes lines from standard input to the worker through shared
// memory, on which the worker waits. State, tools, guard and final answer consist of cells and
// questions, so they work as in any kernel. Files are not sent through the channel, because both
// envd and Python access them on the disk.
//
// Code can reach the functions that send lines, and so can forge lines. The server treats the
// process as hijacked. A forged line can only change the answers to that sandbox's client. If the
// process breaks the protocol, it is ended. Only a line with a request's number answers the
// request, and nobody can guess that number in advance.
//
// # Interrupts
//
// An interrupt is a line. The main thread writes the interrupt into memory, unless the interrupted
// request has already been served. Python checks this memory between its instructions, and also
// while it waits or sleeps. Output is sent in the same way, a few milliseconds later. Code that catches the
// interrupt is killed with its process. As with any kernel, its caller then learns that the
// variables are lost.
//
// # Packages
//
// Python has neither pip nor a network. The client finds and fetches wheels with the pip of a
// second sandbox. The second sandbox is a sandbox of the room (sandbox.Packages). If the cloud has
// a Pyodide distribution, the distribution is visible in the second sandbox. Python unpacks the
// wheels into the home of its user. This home is on Python's path. The server opens no wheel.
//
// # Memory
//
// WebAssembly's memory is bounded below the limit of the sandbox, so that Python raises a
// MemoryError, with its variables intact, before the control group ends the process.
//
// # Refusals
//
// Commands, terminals and ports are refused with an error that names this engine, because there are
// no processes. Images are refused because nothing can run their programs. Languages other than
// Python are refused, too. The network is not refused but absent: Python has no sockets.
package wasm
