// Package link has the parts that every engine needs for the connections of its sandboxes: bounds
// and the errors beyond them ([Slots], [Dialling]), the answers of a daemon inside to a dial ([StatusOf]),
// copying between two ends ([Join]), the egress in force ([Access]), the connections into a sandbox
// that a freeze cuts ([Entrance]), and the freeze itself ([Standstill]).
//
// It knows no engine: each engine stops processes, and answers a refused program, in its own way.
package link
