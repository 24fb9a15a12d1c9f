// Package store keeps what outlives a cloud's process: records in a database and,
// beside it, the directories that records name.
package store
