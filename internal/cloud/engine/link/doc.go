// Package link has the parts that every engine needs for the connections of its sandboxes:
//
//   - bounds on the number of connections, and the error for a connection beyond a bound ([Slots],
//     [Dialling]);
//   - the answers of the daemon in a sandbox to a request to dial ([StatusOf]);
//   - copying between two connections ([Join]);
//   - the egress in force ([Access]);
//   - the connections into a sandbox that a freeze cuts ([Entrance]);
//   - the freeze itself ([Standstill]).
//
// The package does not depend on any engine. Each engine has its own code that stops processes. Each
// engine also has its own code that answers a program when its connection is refused.
package link
