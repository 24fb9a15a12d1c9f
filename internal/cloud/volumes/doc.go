// Package volumes keeps volumes: directories that outlive the sandboxes in which they are
// mounted, and that several sandboxes can share.
//
// A volume is a record of the store. Its directory contains
//
//	files/    the files of the volume
//	new/      files that are being written, until they are complete
//	removed/  removed files, until they are deleted
//
// A volume with a size has these directories in its own file system. Its directory contains
//
//	image     the file system
//	mount/    the mount point, once the volume was used; it is in a mount namespace
//	          that no other process uses and that ends with this process
//
// Files belong to ids of sandboxes, which begin at 0 independently of the ids outside, and have
// any mode. Only this user can reach them, because the directories of the store have the mode
// 0700. An ordinary user has only one id, which is root of the sandboxes: everything in a
// volume belongs to this id.
//
// # Hostile content
//
// Sandboxes change a volume at any time, even while [Content] works in it. No path is resolved
// twice: a file is checked and used through the same descriptor. Directories are reached
// through [os.Root], so that no symbolic link leads out of the volume. Only regular files are
// opened for reading, and opening never waits. Removed files are first moved out of the volume.
// Then they are deleted with one directory open at a time, whatever the depth of the tree.
package volumes
