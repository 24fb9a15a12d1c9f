// Package inside contains the code of re-executed processes: the keeper, the guard, the room, the
// two stages of a sandbox's envd, and the zygote. The server is in package room. Packages inside
// and room do not import each other; package wire defines the messages between them.
package inside
