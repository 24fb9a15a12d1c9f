// Package volumes keeps volumes: directories that outlive the sandboxes they are mounted
// in, and that several of them share.
//
// A volume is a record of the store. Its directory holds
//
//	files/    what is in the volume
//	new/      files that are being written, until they are whole
//	removed/  what was removed, until it is gone
//
// A volume with a size has these in a file system of its own, and its directory holds
//
//	image     the file system
//	mount/    where it is mounted, once the volume was used, in a mount namespace that
//	          nothing else sees and that ends with this process
//
// Files belong to the ids that sandboxes number from 0 on, whatever ids these have
// outside, and have any mode; nobody but this user reaches them, because the store's
// directories are 0700. For an ordinary user there is one id only, which is root of the
// sandboxes: everything in a volume belongs to it.
//
// # Hostile content
//
// Sandboxes change a volume at any moment, also while [Content] works in it. No path
// is followed twice: what is decided about a file is done to the descriptor that was
// looked at. Directories are reached through [os.Root], so that no symbolic link leads
// out. Nothing but regular files is ever opened for reading, and without waiting. What is
// removed is moved out of the volume first, and then taken apart with one directory open
// at a time, however deep it is.
package volumes
