// Package interop holds the tests that run the official E2B SDKs and the
// official command, unmodified, against "e2bctl local up" in a process of its
// own.
//
// Their versions are pinned, with hashes, in js/package-lock.json and
// python/requirements.txt; "make interop-update" moves them to the newest
// releases. The tests install them into the user's cache directory.
package interop
