// Package templates keeps the templates of sandboxes: the built-in templates, which have no
// files, templates that were built, and snapshots of sandboxes. It does not use HTTP.
//
// A template has builds, and tags that each point to one of its ready builds. A tag can be
// moved to another build. A ready build without a tag is removed. Of the failed builds, the
// latest ones are kept. A build that was unfinished when the process ended counts as failed. A
// reference names a template by its id or its name, and one of the template's builds by a tag.
// The tag is "default" if the reference has none.
//
//	base                    a built-in template
//	name, name:tag          a template of the only team
//	local/name[:tag]        the same
//	<template id>[:tag]     any template, even without a name
//
// The files of a build are layers, see package layers.
package templates
