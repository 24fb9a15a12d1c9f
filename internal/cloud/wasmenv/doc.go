// Package wasmenv prepares the environment of sandboxes of WebAssembly: Deno, Pyodide (Python
// compiled to WebAssembly), the programs in deno/ and a snapshot of a Python that has loaded
// the driver of kernels.
//
// [Setup] fetches Deno and Pyodide as packages of npm, through the user's own npm. So npm's
// configuration chooses the registry; no scripts of packages are run. lock.json has the
// versions and the digests of the packages. Setup unpacks nothing else, and only the files
// that are needed. It then runs that Deno once, to make the snapshot. Everything ends up in
// one directory of the user's cache, named by a digest of all its sources.
package wasmenv
