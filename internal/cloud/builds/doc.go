// Package builds builds templates: it runs their steps, each in a sandbox that begins with the
// layers of the steps before, and saves the step's files as another layer. It knows nothing of
// HTTP.
//
// A step is not run again if it and all steps before it ran before with the same contents: its
// result is in the cache. ENV, ARG, and other steps that change no files add no layer.
//
// A build begins with a template or with a container image. Stages that a step copies from, as
// in a Dockerfile, are built first, in the same way. Their files are packed in a sandbox with
// the stage's layers, and unpacked in the step's sandbox.
//
// The command that every sandbox of the template runs at its start is run once at the end, so
// that a build fails if it does. Its files are not kept: each sandbox runs it anew. Its success
// is in the cache, too, so that an unchanged build does not wait until it is ready.
//
// Layers, cached steps and the archives for copying steps share a space. If it is full, cached
// steps and archives are removed first. Files of a sandbox and archives of a client are only
// read inside a sandbox.
package builds
