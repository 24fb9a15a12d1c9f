// Package docker is the engine that runs each sandbox in a container of the user's own Docker, or
// of Podman by its compatible socket.
//
// A container has no network, no ports and no sockets of the server. Its first process is the
// server's own program, a static one. It has a yamux session to the server over its standard input
// and output (package tunnel), through the one connection that attaches the server to the
// container. So a daemon on another machine, or in the virtual machine of a desktop, needs nothing
// more. Programs reach the network only through the proxy that this process serves, and so through
// the rules of the server.
//
// That process ends when its input does, and the daemon removes a container that has ended, so a
// killed server leaves nothing behind. Containers remain only if the daemon itself was killed, or
// if the server was killed while a sandbox was frozen. The next engine to open removes them: labels
// identify their owner.
//
// The server mounts directories of the host itself, because the daemon's mounts cannot keep the
// promises made for them. The daemon takes only mounts that have a path, so each has one while its
// container starts, in a directory that only root may enter ([handover]). A file there shows
// whether the daemon sees the same files and mounts as the server. A lock shows whether the server
// that made the directory lives.
//
// The server writes images of templates into archives that the daemon loads ([Engine.Load]), so the
// server itself fetches and verifies them, for every engine. They have labels too. The
// configuration of a container decides which settings of its image apply besides the layers.
package docker
