// Package jupyter contains the messages of the Jupyter kernel protocol (5.3), both websocket framings of a
// Jupyter server, and the client's end of a kernel's websocket. The SDK uses the package as a client, and the
// local cloud uses it as a server.
//
// Sources: the "Messaging in Jupyter" and "WebSocket kernel wire protocols"
// documents of jupyter_client and jupyter_server.
package jupyter
