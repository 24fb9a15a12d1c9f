// Package store keeps data beyond the life of a cloud's process. It keeps records in a
// database, and the directories that records name beside the database.
//
// A state directory contains
//
//	store.db   the records, the version of the schema and the seed
//	files/     the directories that records name, as ID.RANDOM, or ID.RANDOM.TABLE
//	new/       directories that are being filled
//	notes/     the records of Note
//	trash/     directories that are being removed
//	allowed-hosts.json  hosts about which no question is asked, for the program that asks
//	lock       locked by the process that has the store open; contains its id
//
// A directory is filled in new, then renamed to files, and then named by a record. Its record
// is deleted before the directory is moved to trash. So whenever the process ends, the
// directory of a record exists and is complete, and directories that no record names can be
// removed.
package store
