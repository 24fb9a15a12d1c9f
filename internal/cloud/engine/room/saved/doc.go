// Package saved writes the files of a sandbox to one file and reads them back into another sandbox.
// The file also contains the modes, times, owners, attributes, hard links and holes, and an
// overlay's marks of removed files.
//
// Unlike a directory, one file can be written by any user to any file system and is synced at once.
// The file gives the host no program to run and no name to follow. Owners are in the sandbox's
// numbering, so the next sandbox may have other ids.
//
// The content is hostile: the sandbox's code chose every name and every link. So both sides only
// open names in directories that they have open, and follow no link.
package saved
