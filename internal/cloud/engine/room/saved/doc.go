// Package saved writes the files of a sandbox to one file and reads them back into
// another sandbox: with modes, times, owners, attributes, hard links and holes, and with
// what an overlay notes about files that were removed.
//
// One file instead of a directory can be written by any user to any file system, is
// synced at once, and holds no program that the host could run and no name that it could
// follow. Owners are as the sandbox numbers them, so that it does not matter which ids
// the next one has.
//
// What is read is hostile: the sandbox's code chose every name and every link. So the
// two sides only ever open a name in a directory that they have open, and follow nothing.
package saved
