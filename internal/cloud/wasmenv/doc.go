// Package wasmenv prepares the environment for sandboxes of WebAssembly. The environment consists
// of Deno, Pyodide (Python compiled to WebAssembly), the programs in deno/, and a snapshot of a
// Python interpreter that has loaded the kernel driver.
//
// [Setup] fetches Deno and Pyodide as npm packages, with the user's own npm. So npm's configuration
// decides which registry is used. No scripts of packages are run. lock.json contains the versions
// and digests of the packages. Setup unpacks only these packages, and only the files that are
// needed. Then Setup runs Deno once, to create the snapshot. All files are in one directory in the
// user's cache directory. The name of this directory is a digest of all sources.
package wasmenv
