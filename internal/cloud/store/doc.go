// Package store keeps data beyond the life of a cloud's process. It keeps records in a database. A
// record can name a directory. These directories are beside the database.
//
// A state directory contains
//
//	store.db   the records, the version of the schema and the seed
//	files/     the directories that records name, as ID.RANDOM, or ID.RANDOM.TABLE
//	new/       directories that are being filled
//	notes/     the records of Note
//	trash/     directories that are being removed
//	allowed-hosts.json  hosts about which no question is asked; used by the program that asks
//	lock       locked by the process that has the store open; contains its id
//
// A directory is filled in new/. Then it is moved to files/, and then a record names it. The record
// is deleted before the directory is moved to trash/. Therefore the directory of a record always
// exists and is complete, even if the process ends at any time. Directories that no record names
// can be removed.
package store
