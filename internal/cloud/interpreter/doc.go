// Package interpreter serves code execution inside a sandbox: the code
// interpreter on port 49999 and Jupyter on port 8888, over the same kernels.
//
// Beyond what the service and Jupyter's own server promise, clients of this one
// can rely on this:
//
//   - A websocket with a session_id that ends, however it does, may be followed by
//     another one with the same session_id. It gets, in order, every message that
//     was not acknowledged: those that came while there was no connection, and
//     those that were on their way. The server asks for acknowledgement with
//     pings, which every client answers. What was received and not acknowledged
//     comes again; it has the same msg_id, so a client that drops what it knows
//     has everything exactly once. What the client sent is not kept: a request of
//     which no word comes back, not even the position in the queue or the status
//     busy, before the answer to a later one (such as a kernel_info_request on the
//     shell channel) was never received, and may be sent again.
//   - A session is kept for ten minutes without a connection, and for 16 MiB of
//     messages. One that had to be dropped begins anew, without any message of the
//     time before: an execution of which neither reply nor idle comes before the
//     answer to a later request has an unknown outcome.
//   - A client that is too slow, and would miss a message, is cut: its connection
//     ends, with code 1008 if it still reads.
//   - An answer on the stdin channel whose parent is an earlier question than the
//     one that waits is ignored: who does not know whether its answer has come
//     may send it again.
//   - The msg_ids of what a session gets end in "_" and a number that grows by one.
//   - A request that has to wait is told its position in the queue: on port 49999
//     as a line {"type": "queued", "position": n}, on port 8888 as an iopub message
//     of type "queued" with content {"position": n}, to the asking client alone.
//
// JavaScript, TypeScript and all other languages need a Jupyter kernel in the
// sandbox. The context for JavaScript that the service has from the start is
// there from the start only if the template has such a kernel.
package interpreter
