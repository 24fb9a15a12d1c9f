// Package docker is the engine that runs each sandbox in a container of the user's own Docker
// daemon, or of Podman through its Docker-compatible socket.
//
// A container has no network, no ports and no sockets of the server. Its first process runs the
// server's own program, which is linked statically. The process has a yamux session to the server
// over its standard input and output (package tunnel). This session needs only the connection
// that attaches the server to the container. A daemon on another machine, or in the virtual machine
// of a desktop, therefore needs no other connection. Programs reach the network only through the proxy that
// the first process serves, and therefore only under the rules of the server.
//
// The first process ends when its input ends, and the daemon removes a container that has ended.
// So a killed server leaves nothing behind. Containers remain only if the daemon itself was killed,
// or if the server was killed while a sandbox was frozen. The next engine that is opened removes
// such containers: labels identify their owner.
//
// The server itself mounts directories of the host, because mounts of the daemon cannot keep the
// promises of the engine. The daemon accepts only mounts that have a path. Therefore,
// while a container starts, each of its mounts has a path in a directory that only root may enter
// ([handover]). A file in that directory shows whether the daemon sees the same files and mounts as
// the server. A lock on the directory shows whether the server that made it still runs.
//
// The server writes images of templates into archives that the daemon loads ([Engine.Load]). So the
// server itself fetches and verifies images, for every engine. The loaded images have labels too.
// All layers of an image apply to a container. The configuration of the container decides which
// settings of the image apply, too.
package docker
