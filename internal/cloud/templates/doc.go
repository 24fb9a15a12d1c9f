// Package templates keeps the templates of sandboxes: the built-in templates, which have no files,
// templates that were built, and snapshots of sandboxes. It does not use HTTP.
//
// A template has builds and tags. Each tag points to one of the template's ready builds, and can be
// moved to another one. A ready build without a tag is removed. Of the failed builds, the latest
// ones are kept. A build that was unfinished when the process ended counts as failed.
//
// A reference names a template by its id or its name, and one of the template's builds by a tag. If
// the reference has no tag, the tag is "default".
//
//	base                    a built-in template
//	name, name:tag          a template of the only team
//	local/name[:tag]        the same template, with the name of the team
//	<template id>[:tag]     any template, even without a name
//
// The files of a build are layers, see package layers.
package templates
