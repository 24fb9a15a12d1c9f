// Package store keeps what outlives a cloud's process: records in a database and,
// beside it, the directories that records name.
//
// In a state directory are
//
//	store.db   the records, the schema's version and the seed
//	files/     the directories that records name, as ID.RANDOM, or ID.RANDOM.TABLE
//	new/       directories that are being filled
//	notes/     the records of Note
//	trash/     what is being removed
//	lock       locked by the process that has the store open, with its id in it
//
// A directory is filled in new, renamed into files, and named by a record in that order;
// its record is deleted before it is moved to trash. So whenever the process ends, a
// record's directory is there and whole, and what no record names can be removed.
package store
