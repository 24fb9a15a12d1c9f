// Package image fetches container images and makes layers from them, without a daemon.
//
// A layer of an image is unpacked once for all images that have it above the same layers,
// and shared by all sandboxes. Its chain id identifies it together with the layers below,
// because its content depends on them: it has to repeat their directories.
//
// Everything fetched is foreign. A layer is used only after its digest was compared at the
// end of the stream. The process that unpacks a layer has rights over the files of that
// layer only.
package image
