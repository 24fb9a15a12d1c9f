// Package volumes keeps volumes: directories that outlive the sandboxes in which they are
// mounted, and that several sandboxes may share.
//
// A volume is a record of the store. Its directory holds
//
//	files/    the files of the volume
//	new/      files that are being written, until they are whole
//	removed/  removed files, until they are deleted
//
// A volume with a size has these in a file system of its own, and its directory holds
//
//	image     the file system
//	mount/    its mount point, once the volume was used, in a mount namespace that
//	          nothing else sees and that ends with this process
//
// Files belong to the ids of sandboxes, which are numbered from 0 on independently of the
// ids outside, and have any mode. Nobody but this user reaches them, because the store's
// directories are 0700. An ordinary user has only one id, which is root of the sandboxes:
// everything in a volume belongs to it.
//
// # Hostile content
//
// Sandboxes change a volume at any moment, also while [Content] works in it. No path is
// followed twice: a decision about a file is carried out on the same descriptor.
// Directories are reached through [os.Root], so that no symbolic link leads out. Only
// regular files are ever opened for reading, and without waiting. Removed files are moved
// out of the volume first, and then deleted with one directory open at a time, however
// deep they are.
package volumes
