// Package inside is what runs in re-executed processes: the keeper, the guard, the
// room, the two stages of a sandbox's envd, and the zygote. The server is in package
// room. Neither imports the other; what they say to each other is in package wire.
package inside
