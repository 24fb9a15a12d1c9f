// Package store keeps data beyond the life of a cloud's process: records in a database
// and, beside it, the directories that records name.
//
// A state directory has
//
//	store.db   the records, the schema's version and the seed
//	files/     the directories that records name, as ID.RANDOM, or ID.RANDOM.TABLE
//	new/       directories that are being filled
//	notes/     the records of Note
//	trash/     directories that are being removed
//	allowed-hosts.json  hosts that need no question, for the program that asks
//	lock       locked by the process that has the store open, with its id in it
//
// A directory is filled in new, then renamed into files, then named by a record; its
// record is deleted before it is moved to trash. So at any end of the process, a
// record's directory exists and is complete, and directories that no record names can be
// removed.
package store
