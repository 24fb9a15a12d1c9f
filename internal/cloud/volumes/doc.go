// Package volumes keeps volumes. A volume is a directory that can be mounted in sandboxes. It
// outlives these sandboxes, and several sandboxes can share it.
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
//	mount/    the mount point, once the volume was used; the mount is in a mount namespace
//	          that no other process uses and that ends with this process
//
// Files belong to the ids of sandboxes. These ids begin at 0, independently of the ids outside.
// Files may have any mode. Only the user of this process can reach the files, because the directories of the store have
// the mode 0700. An ordinary user has only one id, which is root in the sandboxes. Everything in a
// volume then belongs to this id.
//
// # Hostile content
//
// Sandboxes may change a volume at any time, even while [Content] works in it. Therefore no path is
// resolved twice: a file is checked and used through the same descriptor. Directories are opened
// through [os.Root], so that no symbolic link leads out of the volume. Only regular files are
// opened for reading, and opening never waits. Removed files are first moved out of the volume.
// While they are deleted, only one directory is open at a time, whatever the depth of the tree.
package volumes
