// Package wasm is the engine that runs Python in WebAssembly: Pyodide, in Deno, in a room.
//
// A sandbox of it is a sandbox of the room, with its files, limits, pauses and snapshots, in
// which nothing is started but Deno. So code has three walls around it: WebAssembly, the
// permissions of Deno, and the namespaces, limits and system calls of the room. Deno is no
// wall that the others stand on: what breaks out of it is a process of a sandbox like any
// other, with the id of its user.
//
// # What runs where
//
// In the server: this package. It adds to the configuration of a sandbox where Deno and
// Pyodide are ([guest.Wasm]), starts it in the room, refuses ports, and says in its report what
// there is not.
//
// In the sandbox: envd with files, interpreter and Jupyter, as everywhere (package reexec). It
// refuses to start processes, by name. For each context it starts one Deno, which package
// kernel speaks to as to any driver.
//
// In Deno: two threads. The main one reads lines and does nothing else; the worker runs Python,
// and comes back to its event loop only while a loop of asyncio waits, when WebAssembly is
// suspended (wasmenv/deno). Python is restored from a snapshot of its memory that has the driver
// loaded (_e2bctl_kernel/wasm.py), so nothing is compiled or imported at the start.
//
// # Permissions
//
// Deno may read its own directory, and read and write the directories that Python is shown:
// the home of the user, the directory for temporary files, /code, mounts and volumes. It may
// do nothing else: no network, no environment, no processes, no libraries, no code that it
// fetches. Python sees these directories at their paths, and files of its own in memory
// everywhere else. Links cannot be made in them, because Deno would have to trust where they
// lead.
//
// # The channel
//
// The worker writes lines of JSON to standard output, those of the driver's protocol: what was
// printed, results, errors, questions. The main thread hands it lines from standard input
// through shared memory, on which the worker waits. So state, tools, guard and final answer,
// which are cells and questions, work as in any kernel. Files do not come this way: both envd
// and Python have them on the disk.
//
// Code can reach the functions by which lines are sent, and forge them. The server treats the
// process as one that is hijacked: a line changes nothing but what that sandbox's client is
// told, what breaks the protocol ends the process, and a request is answered only by a line
// with its number, which nobody can guess before it has come.
//
// # Interrupts
//
// An interrupt is a line. The main thread puts it into memory that Python looks at between its
// instructions, unless the request that it is for has been served. Waiting and sleeping look
// there, too. What was printed is sent in the same way, a few milliseconds later. Code that
// catches the interrupt is killed with its process, and its caller is told that the variables
// are lost, as of any kernel.
//
// # Packages
//
// Python has neither pip nor a network. The client has the pip of a second sandbox, one of the
// room, find and fetch wheels (sandbox.Packages); it sees the Pyodide distribution of the cloud,
// if there is one. Python unpacks them into the home of its user, which is on its path. No
// wheel is looked into in the server.
//
// # Memory
//
// WebAssembly's memory is bounded below the limit of the sandbox, so that Python raises a
// MemoryError, with its variables intact, before the control group ends the process.
//
// # What is refused by name
//
// Commands, terminals and ports, because there are no processes; images, because there is
// nothing to run their programs; other languages than Python. The network is not refused but
// absent: Python has no sockets.
package wasm
