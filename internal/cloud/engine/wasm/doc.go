// Package wasm is the engine that runs Python in WebAssembly: Pyodide, in Deno, in a room.
//
// Its sandbox is a sandbox of the room, with its files, limits, pauses and snapshots, in which
// nothing is started but Deno. So code has three walls around it: WebAssembly, the permissions of
// Deno, and the namespaces, limits and system calls of the room. The other walls do not depend on
// Deno: code that breaks out of it is a process of a sandbox like any other, with the id of its
// user.
//
// # Processes
//
// In the server: this package. It adds the paths of Deno and Pyodide to the configuration of a
// sandbox ([guest.Wasm]), starts it in the room, refuses ports, and lists the missing features in
// its report.
//
// In the sandbox: envd with files, interpreter and Jupyter, as everywhere (package reexec). It
// refuses to start processes, with an error that names this engine. For each context it starts one
// Deno. Package kernel talks to it as to any driver.
//
// In Deno: two threads. The main one reads lines and does nothing else; the worker runs Python. It
// comes back to its event loop only while an asyncio loop waits, when WebAssembly is suspended
// (wasmenv/deno). Python is restored from a snapshot of its memory that has the driver loaded
// (_e2bctl_kernel/wasm.py), so nothing is compiled or imported at the start.
//
// # Permissions
//
// Deno may read its own directory, and read and write the directories that Python is shown: the
// home of the user, the directory for temporary files, /code, mounts and volumes. It may do nothing
// else: no network, no environment, no processes, no libraries, no code that it fetches. Python
// sees these directories at their paths, and files of its own in memory everywhere else. Links
// cannot be made in them, because Deno would have to trust their targets.
//
// # The channel
//
// The worker writes lines of JSON to standard output, as in the driver's protocol: output, results,
// errors, questions. The main thread hands it lines from standard input through shared memory, on
// which the worker waits. So state, tools, guard and final answer, which are cells and questions,
// work as in any kernel. Files do not come this way: both envd and Python have them on the disk.
//
// Code can reach the functions that send lines, and forge them. The server treats the process as
// hijacked: a line can only change what that sandbox's client is told, a broken protocol ends the
// process, and only a line with a request's number answers the request. Nobody can guess that
// number in advance.
//
// # Interrupts
//
// An interrupt is a line. The main thread puts it into memory that Python looks at between its
// instructions, unless its request has already been served. Waiting and sleeping look there, too.
// Output is sent in the same way, a few milliseconds later. Code that catches the interrupt is
// killed with its process, and its caller is told that the variables are lost, as for any kernel.
//
// # Packages
//
// Python has neither pip nor a network. The client finds and fetches wheels with the pip of a second sandbox, a
// sandbox of the room (sandbox.Packages). That sandbox sees the Pyodide distribution of the cloud, if there is
// one. Python unpacks them into the home of its user, which is on its path. The server looks into no wheel.
//
// # Memory
//
// WebAssembly's memory is bounded below the limit of the sandbox, so that Python raises a
// MemoryError, with its variables intact, before the control group ends the process.
//
// # Refusals
//
// Commands, terminals and ports are refused with such an error, because there are no processes. Images are
// refused because nothing can run their programs. Languages other than Python are refused, too. The network is
// not refused but absent: Python has no sockets.
package wasm
