// Package templates keeps what sandboxes can be made from: the built-in templates, which
// have no files, and snapshots of sandboxes. It knows nothing of HTTP.
//
// A template has builds, and tags that each point to one of them that is ready; a tag may be
// given to another build. A build that is ready and that no tag points to is removed, and of
// those that failed the last ones stay. A build that was not finished when the process ended
// has failed. A reference names a template by
// its id or its name, and one of its builds by a tag: "default" if it says none.
//
//	base                    a built-in template
//	name, name:tag          a template of the one team
//	local/name[:tag]        the same
//	<template id>[:tag]     one without a name, too
//
// What a build holds of files are layers, see package layers.
package templates
