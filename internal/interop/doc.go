// Package interop holds the tests that run the official E2B SDKs and the
// official command, unmodified, against "e2bctl local up" in a process of its
// own.
//
// Two generations are pinned, with hashes, in the folders newest and 2.45 of js
// and python; python/others pins what others build on a sandbox: smolagents, and
// the Jupyter project's own client and framings. "make interop-update" moves all
// but 2.45 to the releases of the day. The tests install them into the user's
// cache directory.
//
// What the SDKs are made to do is in js/cases and python/cases, one file a
// feature, and what the others do in python/othercases; what the command is made to do is in command_test.go. Each case gets
// a sandbox of its own and is a subtest, so a failure names what does not work.
// The Python cases are written for the asynchronous SDK; the blocking one runs
// the same source without its awaits.
package interop
