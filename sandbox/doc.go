// Package sandbox runs code and commands in E2B-style cloud sandboxes: it creates
// sandboxes, works with what is inside them, and tears them down again.
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
// The same program runs against E2B, a self-hosted service, and the local
// cloud of package sandbox/local.
//
// # Configuration
//
// Each setting comes from the first of these sources that has it: an option such as [WithAPIKey],
// the environment (E2B_API_KEY, E2B_API_URL, E2B_DOMAIN, E2B_SANDBOX_URL,
// E2B_VOLUME_API_URL), the file .env in the working directory, the default. An address from .env is
// refused unless the key comes from there, too; see [api.FromEnv].
//
// # Life of a sandbox
//
// By default a sandbox has a lease, which is renewed while its handle is open: it
// is gone at most five minutes after the program ends, however that happens.
// [WithExpiry] sets a fixed lifetime instead. How long a call may take is set
// by its context, which never ends a sandbox. [Sandbox.Close] tears down a
// sandbox that this program created and leaves one that it connected to running;
// [Sandbox.Detach] leaves both running.
//
// [Sandbox.Pause] keeps a sandbox for later, with its processes and memory or only
// with its files, and [Sandbox.Resume] or [Connect] continues it, days later and in
// another program. With Expiry.Then it is paused instead of killed when its
// lifetime is over; its handle then keeps it alive only with Expiry.Renew.
//
// [Sandbox.Fork] makes copies of a running sandbox, to try several ways from one
// point on, and [Sandbox.Snapshot] keeps a state that [WithTemplate] makes any number
// of sandboxes from. E2B's service copies processes and memory, too, and so does a local
// cloud whose engine saves memory, as gVisor does; others only copy the files. The answers
// say which.
//
// Package sandbox/template builds templates, which are files, variables and a server to
// start that [WithTemplate] makes sandboxes of.
//
// # Ports
//
// Servers in a sandbox, whatever address they listen on there, are reached with
// [Sandbox.Transport] for HTTP, [Sandbox.DialWebsocket] for websockets, and
// [Sandbox.Dial] for everything else; [Sandbox.URL] is for browsers. The first
// three resolve no host name for a port, so they work in the same way with the
// local cloud.
//
// # Commands and terminals
//
// [Commands.Run] runs a command and waits for its end, as exec.Cmd's Run does;
// the command ends when the context does. [Commands.Start] returns a [Command]
// that outlives its context, to wait for, signal, send input to and follow.
// [PTY.Open] returns a [Terminal], an [io.ReadWriteCloser]. [Commands.Connect] and
// [PTY.Connect] find one again, by its pid or by a tag. What was started and has
// not ended ends with the sandbox.
//
// [Git] has the operations of git that E2B's SDKs have, with credentials that are
// for one call.
//
// # Packages
//
// [Packages.Install] installs the packages that requirements name;
// [Packages.Lock] pins them, and [Packages.InstallLock] installs exactly the
// files of a [LockFile], checked by their hashes, from this machine where they are
// cached. [WithPackageIndex] sets another index to take them from. A requirement
// that is refused is a [*RequirementError], and a failure of pip an
// [*InstallError].
//
// # Agents
//
// Runs of an agent, whose model and tools stay in this program, are in package
// sandbox/agent. To run an existing agent entirely inside a sandbox, use
// [Sandbox.RunProgram]. That works on any architecture and leaves nothing of the
// agent on this machine, but the key goes into the sandbox, the agent starts only
// when all of it has been uploaded and installed, and typed values, tools, step
// limits, redaction and audit are up to the agent itself. For snippets that a
// model writes, a run is better.
//
// # What is not here
//
// Two more places to run are not here yet: Docker containers, and Python in
// WebAssembly.
//
// # Errors
//
// An answer in which the service refuses a call is an [*Error] with its
// classes ([ErrNotFound] and so on); errors.Is with [ErrRetryable]
// reports whether the same call can succeed later. [ErrGone], with [*GoneError],
// means that the sandbox is no longer there or is paused, [ErrPortClosed] that nothing listens
// on a port; [ErrKernelDied], [ErrKernelLost] and [ErrKernelRestarted] are about
// the kernel behind RunCode, [ErrCommandLost] is about the connection to a
// command. A command that fails is an [*ExitError], and an exception an
// [*ExecutionError]; both are returned together with a complete result. Errors
// about files are [*fs.PathError] values.
//
// A call whose context ends returns within 100 ms with the context's error; the
// command is killed or the code interrupted in the background, and Close waits
// for that. Code that ignores the interrupt has its kernel replaced: the next
// call for the context returns [ErrKernelRestarted], unless it is a step of an
// agent's run whose StepTimeout ended the code.
//
// # Code
//
// [Sandbox.RunCode] runs code and waits for its end, [Sandbox.StreamCode] reports
// what the code does as it happens. A [Result] has every representation that the
// kernel sent, among them [Result.DataFrame] and [Result.Chart] as typed values,
// and [Execution.Decode] stores the value of the last expression in a Go
// variable.
//
// Code goes over one websocket for each context, which is kept open. If that is
// cut while code runs, a new one takes its place, and the execution is complete
// if its messages show that none is missing; otherwise the error is
// [ErrKernelLost], returned together with what had arrived. The local cloud keeps
// the messages sent in between; on E2B's service they are lost, because a client
// of the service's own stays connected. Code is never sent twice. Where the
// websocket is not available, code goes over HTTP: [Sandbox.CodeTransport]
// returns which of the two is in use, and what needs the websocket fails with
// [ErrNeedsWebsocket].
//
// # Concurrency and memory
//
// All handles are safe for concurrent use. Calls that run code in one context run
// one after another; commands and files have no order. Output goes to writers as
// it arrives; results keep its beginning and its end and say how much they
// dropped.
//
// # Packages beside it
//
// Package agent runs the agents that use a sandbox, template builds what sandboxes are made
// from, chart has the data of figures, and otel makes spans of OpenTelemetry. Package local
// starts the local cloud, and sandboxtest starts one for tests.
package sandbox
