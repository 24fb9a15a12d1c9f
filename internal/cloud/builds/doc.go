// Package builds builds templates: it runs their steps, each in a sandbox that stands on
// the layers that the steps before it have left, and keeps what it wrote as one more. It
// knows nothing of HTTP.
//
// A step whose content, and that of all steps before it, ran before is not run again: what
// it led to is in the cache. ENV, ARG, and whatever else changes no files leave no layer.
//
// A build begins with a template or with a container image. What else steps copy from, the
// stages of a Dockerfile, is built before them in the same way, and packed and placed in
// sandboxes that stand on the one and the other.
//
// The command that every sandbox of the template runs when it starts is run once at the end,
// so that a build fails if it does. What it writes is not kept: each sandbox runs it anew. That
// it succeeded is in the cache, too, so that a build of which nothing changed does not wait
// until it is ready.
//
// Layers, cached steps and the archives with the files that steps copy share a space, from
// which cached steps and archives go first. Nothing that a sandbox wrote, and no archive of
// a client, is looked into outside of a sandbox.
package builds
