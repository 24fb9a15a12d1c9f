// Package interpreter serves code execution inside a sandbox: the code interpreter on port
// 49999, and Jupyter on port 8888. Both use the same kernels.
//
// This server promises more than the service and more than Jupyter's own server:
//
//   - After a websocket with a session_id has ended, for any reason, a new websocket
//     with the same session_id continues the session. It receives, in order, every
//     message that was not acknowledged: messages that arrived while there was no
//     connection, and messages that were in transit. The server asks for
//     acknowledgements with pings, which every client answers. A message that was
//     received but not acknowledged is sent again with the same msg_id. So a client
//     that drops messages it already has receives each message exactly once.
//   - The messages of the client are not kept. If a request receives no message at
//     all before a later request is answered (such as a kernel_info_request on the
//     shell channel), the server never received it, and the client may send it
//     again. A position in the queue and the status busy count as messages here.
//   - A session is kept for ten minutes without a connection, and for at most 16 MiB
//     of messages. A session that was dropped starts again without any of the
//     earlier messages. If neither the reply nor idle of an execution arrives before
//     a later request is answered, the outcome of that execution is unknown.
//   - A client that is too slow to receive every message is disconnected, with code
//     1008 if it still reads.
//   - An answer on the stdin channel is ignored if its parent is an earlier question
//     than the pending one. So a client that does not know whether its answer
//     arrived may send it again.
//   - The msg_ids of a session end in "_" and a number that increases by one.
//   - A request that must wait receives its position in the queue: on port 49999 as
//     a line {"type": "queued", "position": n}, and on port 8888 as an iopub message
//     of type "queued" with the content {"position": n}. Only the client that sent
//     the request receives it.
//
// All languages except Python, including JavaScript and TypeScript, require a Jupyter kernel in
// the sandbox. The service has a JavaScript context from the start. This server has one from
// the start only if the template has such a kernel.
package interpreter
