// Package wasmenv prepares what sandboxes of WebAssembly run: Deno, Pyodide (Python compiled
// to WebAssembly), the programs in deno/ and a snapshot of a Python that has loaded the driver
// of kernels.
//
// [Setup] fetches both as packages of npm, through the user's own npm, so its configuration
// says where from, and without any of their scripts. The versions and the digests of the
// packages are in lock.json; nothing else is unpacked, and of the packages only the files that
// are needed. It then runs that Deno once, to make the snapshot. Everything ends up in one
// directory of the user's cache, named after all that it is made from.
package wasmenv
