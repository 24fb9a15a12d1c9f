// Package image fetches container images and creates layers from them, without a daemon.
//
// Sandboxes share the unpacked layers of an image. Images that have a layer above the same lower
// layers share it, too. A layer is identified by its chain id, which also depends on the layers
// below. The unpacked content depends on the layers below as well, because it repeats their
// directories.
//
// Everything that is fetched is untrusted. A layer is used only after its digest was verified
// at the end of the stream. The process that unpacks a layer has rights over the files of that
// layer only.
package image
