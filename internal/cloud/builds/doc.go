// Package builds builds templates. It runs each step in a sandbox that begins with the layers
// of the steps before, and saves the files of the step as another layer. The package does not
// use HTTP.
//
// If a step and all steps before it already ran with the same contents, the result of the step is
// in the cache, and the step is not run again. ENV, ARG, and other steps that change no files add
// no layer.
//
// A build begins with a template or with a container image. Stages that a step copies from, as
// in a Dockerfile, are built first, in the same way. Their files are packed in a sandbox with
// the stage's layers, and unpacked in the step's sandbox.
//
// A template may have a start command, which runs in each of its sandboxes. A build runs this
// command once at the end, and fails if the command fails. The files that the command writes
// are not kept. The cache also records that the command succeeded, so that an unchanged build does
// not wait until the command is ready.
//
// Layers, cached steps and the archives of COPY steps share a bounded disk space. If it is
// full, cached steps and archives are removed first. Files of a sandbox and archives of a
// client are only read inside a sandbox.
package builds
