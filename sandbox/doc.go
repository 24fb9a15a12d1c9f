// Package sandbox runs code and commands in E2B-style cloud sandboxes: it creates sandboxes,
// works with their code, commands and files, and tears them down.
//
//	sb, err := sandbox.Create(ctx)
//	if err != nil {
//		return err
//	}
//	defer sb.Close() // created here, so it is torn down
//
//	ex, err := sb.RunCode(ctx, "import math; math.factorial(20)", &sandbox.RunCodeParams{Stdout: os.Stdout})
//	if err != nil {
//		return err
//	}
//	fmt.Println(ex.Text())
//
// The same program runs against E2B, a self-hosted service, and the local cloud of package
// sandbox/local.
//
// # Configuration
//
// Each setting comes from the first of these sources that contains it: an option such as
// [WithAPIKey], the environment (E2B_API_KEY, E2B_API_URL, E2B_DOMAIN, E2B_SANDBOX_URL,
// E2B_VOLUME_API_URL), the file .env in the working directory, and the default. An address from
// .env is accepted only if the key also comes from .env; see [api.FromEnv].
//
// # Life of a sandbox
//
// By default a sandbox has a lease, which its open handle renews. The sandbox ends at most five
// minutes after the program ends, even if the program crashes. [WithExpiry] sets a fixed lifetime
// instead. The context of a call limits only the call and never ends a sandbox. [Sandbox.Close]
// tears down a sandbox that this program created. A sandbox to which the program only connected
// continues to run. [Sandbox.Detach] leaves both kinds running.
//
// [Sandbox.Pause] keeps a sandbox for later, with its processes and memory or only with its
// files, and [Sandbox.Resume] or [Connect] continues it, even days later and in another
// program. With Expiry.Then, the end of the lifetime pauses the sandbox instead of killing it.
// The handle of such a sandbox renews the lifetime only if Expiry.Renew is set.
//
// [Sandbox.Fork] makes copies of a running sandbox, to try several continuations of one state.
// [Sandbox.Snapshot] keeps a state, from which [WithTemplate] creates any number of sandboxes.
// E2B's service also copies processes and memory, as does a local cloud with an engine that saves
// memory, such as gVisor. Other engines copy only the files. The results report whether processes
// and memory were copied.
//
// Package sandbox/template builds templates. A template has files, variables and a server to
// start, and [WithTemplate] creates sandboxes from it.
//
// # Ports
//
// A program reaches the servers in a sandbox with [Sandbox.Transport] for HTTP,
// [Sandbox.DialWebsocket] for websockets, and [Sandbox.Dial] for everything else. The servers may
// listen on any address in the sandbox. [Sandbox.URL] is for browsers. Transport, DialWebsocket and
// Dial resolve no host name for a port, so they also work with the local cloud.
//
// # Commands and terminals
//
// [Commands.Run] runs a command and waits for its end, as exec.Cmd's Run does; the command ends
// when the context does. [Commands.Start] returns a [Command] that outlives the context of the
// call. The methods of the Command wait for it, signal it, send it input and follow its output.
// [PTY.Open] returns a [Terminal], an [io.ReadWriteCloser]. [Commands.Connect] and [PTY.Connect]
// connect to a running command or terminal by its pid or its tag. All commands and terminals end
// with the sandbox.
//
// [Git] has the git operations of E2B's SDKs, with credentials that apply to one call.
//
// # Packages
//
// [Packages.Install] installs packages by their requirements. [Packages.Lock] pins them, and
// [Packages.InstallLock] installs exactly the files of a [LockFile], checked by their hashes. If
// the cache of this machine contains the files, InstallLock uses them. [WithPackageIndex] sets
// another package index. The error is a [*RequirementError] for a refused requirement, and an
// [*InstallError] for a failure of pip.
//
// # Agents
//
// Package sandbox/agent runs the code of an agent whose model and tools stay in this program.
// Use it for snippets that a model writes.
//
// To run an existing agent entirely inside a sandbox, use [Sandbox.RunProgram]. RunProgram works on
// any architecture and leaves nothing of the agent on this machine. But the model's key goes into
// the sandbox, and the agent starts only after it has been uploaded and installed. The agent itself
// must provide typed values, tools, step limits, redaction and audit.
//
// # Engines
//
// The local cloud runs sandboxes in namespaces of this machine, in Docker containers, in
// gVisor, or as Python in WebAssembly: see package sandbox/local.
//
// # Errors
//
// If the service refuses a call, the error is an [*Error] with its classes ([ErrNotFound] and
// so on). errors.Is with [ErrRetryable] reports whether the same call can succeed later. These
// errors are frequent:
//
//   - [ErrGone], with [*GoneError]: the sandbox has ended or is paused
//   - [ErrPortClosed]: nothing listens on a port
//   - [ErrKernelDied], [ErrKernelLost], [ErrKernelRestarted]: the kernel behind RunCode was lost or replaced
//   - [ErrCommandLost]: the connection to a command broke
//   - [*ExitError]: a command failed; the result is complete
//   - [*ExecutionError]: code raised an exception; the execution is complete
//   - [*fs.PathError]: an operation on a file failed
//
// A call whose context ends returns within 100 ms with the context's error. In the background the
// command is killed or the code is interrupted, and Close waits for that. If code ignores the
// interrupt, its kernel is replaced. The next call for that context returns [ErrKernelRestarted],
// except in a run of package agent whose StepTimeout ended the code.
//
// # Code
//
// [Sandbox.RunCode] runs code and waits for its end. [Sandbox.StreamCode] reports the events of the
// code as they happen. A [Result] has every representation that the kernel sent, and
// returns two of them as typed values: [Result.DataFrame] and [Result.Chart]. [Execution.Decode]
// stores the value of the last expression in a Go variable.
//
// Each context has a websocket, which stays open and transmits the code of that context. Code is
// never sent twice. If the websocket is cut while code runs, a new one replaces it. The execution
// is complete if the received messages prove that no message is missing. Otherwise the error is
// [ErrKernelLost], and the execution contains the output until the cut. The local cloud keeps the
// messages that the kernel sends between the two connections. E2B's service loses these messages,
// because the service's own client of the kernel stays connected.
//
// Without a websocket, code goes over HTTP. [Sandbox.CodeTransport] returns the transport in
// use. Features that need the websocket fail with [ErrNeedsWebsocket] over HTTP.
//
// # Concurrency and memory
//
// All handles are safe for concurrent use. Calls that run code in one context run one after
// another; commands and file operations run at the same time. Writers receive output as it
// arrives. Results keep the beginning and the end of the output and count the dropped bytes.
//
// # Related packages
//
// Package agent runs the code of agents, template builds templates, chart contains the data of
// figures, and otel creates OpenTelemetry spans. Package local starts the local cloud, and
// sandboxtest starts one for tests.
package sandbox
