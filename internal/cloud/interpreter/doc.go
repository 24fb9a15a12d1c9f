// Package interpreter serves code execution inside a sandbox: the code
// interpreter on port 49999 and Jupyter on port 8888, over the same kernels.
//
// Clients of this server can rely on the following, beyond the promises of the
// service and of Jupyter's own server:
//
//   - After a websocket with a session_id ends, for whatever reason, a new one with
//     the same session_id continues the session. It receives, in order, every
//     message that was not acknowledged: those that arrived while there was no
//     connection, and those that were in transit. The server asks for
//     acknowledgement with pings, which every client answers. A message that was
//     received but not acknowledged is sent again with the same msg_id, so a client
//     that drops messages it already has sees each exactly once. What the client
//     sent is not kept. If a request gets no message at all, not even its position
//     in the queue or the status busy, before a later request (such as a
//     kernel_info_request on the shell channel) is answered, the server never
//     received it, and the client may send it again.
//   - A session is kept for ten minutes without a connection, and for 16 MiB of
//     messages. A session that had to be dropped starts over without any of the
//     earlier messages: if neither the reply nor idle of an execution arrives
//     before a later request is answered, the outcome of that execution is unknown.
//   - A client that is too slow, and would miss a message, is disconnected, with
//     code 1008 if it still reads.
//   - An answer on the stdin channel whose parent is an earlier question than the
//     pending one is ignored, so a client that does not know whether its answer
//     arrived may send it again.
//   - The msg_ids of the messages of a session end in "_" and a number that grows
//     by one.
//   - A request that has to wait is told its position in the queue: on port 49999
//     as a line {"type": "queued", "position": n}, on port 8888 as an iopub message
//     of type "queued" with content {"position": n}. Only the client that made the
//     request gets it.
//
// JavaScript, TypeScript and all other languages need a Jupyter kernel in the
// sandbox. The service has a JavaScript context from the start; this server has one
// from the start only if the template has such a kernel.
package interpreter
