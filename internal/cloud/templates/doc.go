// Package templates keeps the templates of sandboxes: the built-in ones, which have no
// files, and snapshots of sandboxes. It knows nothing of HTTP.
//
// A template has builds, and tags that each point to one of its ready builds; a tag may be
// moved to another build. A ready build without a tag is removed. Of the failed builds, the
// last ones stay. A build that was not finished when the process ended has failed. A
// reference names a template by its id or its name, and one of its builds by a tag. Without
// a tag it means "default".
//
//	base                    a built-in template
//	name, name:tag          a template of the one team
//	local/name[:tag]        the same
//	<template id>[:tag]     one without a name, too
//
// The files of a build are layers, see package layers.
package templates
