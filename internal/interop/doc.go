// Package interop contains the tests that run the official E2B SDKs and the official
// command, unmodified, against "e2bctl local up" in a separate process.
//
// Two generations of the SDKs are pinned, with hashes, in the folders newest and 2.45 of js and
// python. python/others pins projects of other authors that use a sandbox: smolagents, and the
// Jupyter project's own client and framings. python/openai-agents contains the OpenAI Agents SDK,
// which installs an older E2B SDK. "make interop-update" updates all of these packages except 2.45
// to the current releases. It also updates js/node, the Node that runs the newest JavaScript SDK.
// "make deps" installs all packages into the user's cache directory.
//
// The cases for the SDKs are in js/cases and python/cases, with one file for each feature. The
// cases for the other projects are in python/othercases and python/agentcases. The cases for the
// command are in command_test.go and commandpause_test.go. Each case is a subtest, so that a
// failure names the broken feature. Each case has a sandbox of its own, except cases that are
// registered together. The cases of a file that are registered together share one sandbox. They can
// share it because no case leaves anything behind that disturbs another case. The Python cases are written for the asynchronous SDK. The
// blocking SDK runs the same source without the awaits. A client can find the cloud by its
// addresses, without TLS, or by E2B_DOMAIN alone, over https. Both ways are tested, but an ordinary
// run does not test both with every client. For each client, the table clientRuns in clients_test.go
// lists the ways that every run tests. With SOAK=1, all clients run in both ways.
//
// "make check-engines" also runs the newest SDKs on clouds of containers and of WebAssembly. It
// leaves out each case that needs a feature which the engine does not have. needy_test.go names these
// cases.
//
// METHODS.md lists the methods of the SDKs. methods_test.go fails if the list is wrong.
//
// The cases in defaultcases make every call with the default values of an SDK. The test in
// fields_test.go reads these requests, and fails if the cloud ignores a field that it does not
// know. The test in everyfield_test.go sends each request that the newest Python SDK can make, with
// every field that the request can have. everyfield.py reads these fields from the SDK. The test in
// builder_test.go makes all builders define the templates of js/definitions.mjs and
// python/definitions.py, and compares their requests with ours.
package interop
