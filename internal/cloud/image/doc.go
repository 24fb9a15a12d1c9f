// Package image fetches container images and makes layers of theirs, without a daemon.
//
// A layer of an image is unpacked once for all images that have it above the same ones, and
// shared by all sandboxes. It is known by its chain id, which says that: what a layer
// contains depends on those below, whose directories it has to repeat.
//
// All that is fetched is foreign. Nothing of a layer is used before its digest was compared
// at the end of the stream; who it is unpacked by has rights over the files of that layer
// only.
package image
