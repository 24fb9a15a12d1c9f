// Package interop contains the tests that run the official E2B SDKs and the
// official command, unmodified, against "e2bctl local up" in a separate
// process.
//
// Two generations are pinned, with hashes, in the folders newest and 2.45 of js
// and python. python/others pins what other projects build on a sandbox:
// smolagents, and the Jupyter project's own client and framings;
// python/openai-agents has the OpenAI Agents SDK, which brings an older SDK of
// its own. "make interop-update" moves all of them except 2.45 to the current
// releases, and js/node, the Node that runs the newest. "make deps" installs them into
// the user's cache directory.
//
// The cases for the SDKs are in js/cases and python/cases, one file per
// feature, those for the other projects in python/othercases and
// python/agentcases, and those for the command in command_test.go and
// commandpause_test.go. Each case is a subtest, so a failure names what does not
// work, and gets a sandbox of its own, but for those that are registered together:
// these have one for all of their file, because they leave nothing behind that
// disturbs the others. The Python cases are written
// for the asynchronous SDK; the blocking one runs the same source without its
// awaits. Both ways to find the cloud are tested: by its addresses, without TLS, and
// by E2B_DOMAIN alone, over https. Not every client runs in both ways every time: the
// table clientRuns in clients_test.go says which do, and SOAK=1 runs all.
//
// "make check-engines" also runs the newest SDKs on clouds of containers and of WebAssembly,
// all cases but those that need what that engine does not have (needy_test.go names them).
//
// METHODS.md lists the methods of the SDKs, and methods_test.go keeps it true.
//
// The cases in defaultcases make every call with the values that an SDK chooses
// itself. The test in fields_test.go hears what is sent then, and fails where
// the cloud leaves out a part of it that it does not know. The test in
// everyfield_test.go sends each request that the newest Python SDK knows how to make, with
// every field that it can have, which everyfield.py reads from the SDK. The test in
// builder_test.go has all builders define the templates of js/definitions.mjs and
// python/definitions.py, and compares what they send with what ours does.
package interop
