// Package layer defines the format of a directory of files that sandboxes share, one below the
// other:
//
//	layer.json  describes the rest, and shows that it is complete
//	trees/0     the files written in the root
//	trees/1     the files written in a tree of the host, and so on
//
// Each directory of trees is a layer of an overlay: a removed file is a device 0:0, and a directory
// that replaced another one is marked opaque. Owners are in the sandbox's numbering, so on the host
// these files can give rights to others: the directory of a layer must be closed to them.
//
// The content of trees is hostile: code of sandboxes chose every name and every link. So a name is
// only ever opened in a directory that is already open, and no link is followed.
package layer
