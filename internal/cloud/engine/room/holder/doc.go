// Package holder makes the changes of files that programs of a sandbox without namespaces ask for:
// of mode, owner and times, and watches of directories.
//
// The kernel allows these to every process with the id that owns a file, and Landlock does not check them, so a
// sandbox with the server's id could change all files of the user. The filter (package seccomp) therefore lets
// no process of the sandbox make such a call. The filter asks the holder instead. The holder is envd, the
// ancestor of all other processes of the sandbox: they cannot read its memory. The holder copies the arguments,
// finds the file, and makes the call itself if the file is in the sandbox's own directory. It never has the
// kernel continue the call of the process, whose arguments another thread can change meanwhile. Calls are served
// in order of arrival, so a process that makes many delays others only by one call of each of its threads.
//
// A signal interrupts a waiting call, and the kernel makes it again afterwards, unless the handler
// wants EINTR. So a call may be made twice, which changes nothing. For this reason a sandbox can be
// frozen at any time.
//
// The holder is under the same filter: when another part of envd makes such a call, the filter asks the holder
// about it, too. The holder's own calls have a random key as their last argument, which the kernel ignores and
// the filter looks at.
package holder
