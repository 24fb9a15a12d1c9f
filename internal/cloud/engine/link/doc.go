// Package link has the parts that every engine needs for the connections of its sandboxes:
//
//   - bounds, with the errors for connections beyond them ([Slots], [Dialling]);
//   - the answers of the daemon in a sandbox to a dial ([StatusOf]);
//   - copying between two connections ([Join]);
//   - the egress in force ([Access]);
//   - the connections into a sandbox that a freeze cuts ([Entrance]);
//   - the freeze itself ([Standstill]).
//
// The package does not depend on any engine. Each engine has its own code that stops processes and
// answers a program whose connection is refused.
package link
