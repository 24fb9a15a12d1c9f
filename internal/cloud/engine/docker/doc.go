// Package docker is the engine that runs each sandbox in a container of the user's own
// Docker, or of Podman by its compatible socket.
//
// A container has no network, no ports and no sockets of the server: its first process is the
// server's own program, a static one, which has a yamux session to the server at its standard
// input and output (package tunnel), over the one connection by which the server is attached
// to the container. So a daemon on another machine, or in the virtual machine of a desktop,
// needs nothing more. Programs reach the network only through the proxy that this process
// serves, and so through the rules of the server.
//
// That process ends when its input does, and the daemon removes a container that has ended,
// so nothing is left of a server that was killed. What is left when the daemon itself was
// killed, or when the server was killed while a sandbox was frozen, is removed when the next
// engine opens: labels say whose it is.
//
// Directories of the host are shown by mounts that this server makes, because a daemon can make
// none that keep what is promised of them. The daemon takes only mounts that have a path, so
// each has one while its container starts, in a directory that only root may enter
// ([handover]). A file there shows whether the daemon sees the same files and mounts as the
// server. A lock shows whether the server that made the directory lives.
//
// Images of templates are loaded into the daemon from archives that the server writes
// ([Engine.Load]), so that it is the server that fetches and verifies them, for whichever
// engine. They have labels too, and the configuration of a container says what of the image
// counts besides its layers.
package docker
