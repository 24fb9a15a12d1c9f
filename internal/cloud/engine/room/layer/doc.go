// Package layer defines the format of a layer: a directory with files that sandboxes share. A
// sandbox can have several layers, one below the other. The directory contains:
//
//	layer.json  describes the other files, and shows that they are complete
//	trees/0     the files written in the root
//	trees/1     the files written in a tree of the host, and so on
//
// Each directory in trees is a layer of an overlay. A removed file is a device 0:0, and a directory
// that replaced another directory is marked opaque. The ids of owners are ids of the sandbox. On
// the host, the same ids may belong to other users, and these files can give rights to those users.
// So the directory of a layer must be closed to other users.
//
// The content of trees is hostile, because code of sandboxes chose every name and every link. So a
// name is only opened in a directory that is already open, and no link is followed.
package layer
