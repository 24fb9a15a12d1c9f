// Package holder makes certain changes for the programs of a sandbox without namespaces: changes of
// a file's mode, owner and times, and watches of directories.
//
// The kernel permits these calls to every process with the id that owns the file, and Landlock does
// not check them. So a sandbox with the server's id could change all files of the server's user.
// Therefore the filter (package seccomp) does not let any process of the sandbox make such a call,
// but forwards the call to the holder. The holder is envd, the ancestor of all other processes of
// the sandbox. These processes cannot read envd's memory. The holder copies the arguments, finds
// the file, and makes the call itself if the file is in the sandbox's own directory. It never makes
// the kernel continue the original call, because another thread of the process can change the
// arguments in the meantime. The holder serves calls in order of arrival. So a process that makes
// many calls delays the calls of others only by one call for each of its threads.
//
// A signal interrupts a waiting call. The kernel makes the call again afterwards, unless the signal
// handler requests EINTR. So the holder may make a call twice; the second call has no further
// effect. For this reason, a sandbox can be frozen at any time.
//
// The filter also applies to the holder's process. If another part of envd makes such a call, the
// filter forwards this call to the holder, too. The holder's own calls have an additional last
// argument, a random key. The kernel ignores this argument, and the filter checks it.
package holder
