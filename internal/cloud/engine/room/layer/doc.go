// Package layer is the format of a directory of files that sandboxes share, one below the
// other:
//
//	layer.json  says what the rest is, and that it is complete
//	trees/0     what was written in the root
//	trees/1     what was written in a tree of the host, and so on
//
// Each directory of trees is one of an overlay: a removed file is a device 0:0, and a
// directory that replaced another one is marked opaque. Owners are as sandboxes number
// them, so that on the host these files can give rights to others: the directory of a
// layer must be closed to them.
//
// What is in trees is hostile: code of sandboxes chose every name and every link. So a name
// is only ever opened in a directory that is open, and nothing is followed.
package layer
