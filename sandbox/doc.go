// Package sandbox runs code and commands in E2B-style cloud sandboxes: it
// creates them, talks to what is inside, and takes them down again.
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
// For each setting the first source that has it decides: an [Option], the
// environment (E2B_API_KEY, E2B_API_URL, E2B_DOMAIN, E2B_SANDBOX_URL), the file
// .env of the working directory, the default. An address from .env is refused
// when the key is not from there, too; see [api.FromEnv].
//
// # Life of a sandbox
//
// By default a sandbox is on a lease, renewed while its handle is open: it is
// gone at most five minutes after the program, however that ended.
// [WithLifetime] fixes its life instead. How long a call may take is its
// context's business, which never ends a sandbox. [Sandbox.Close] tears down
// what this program created and leaves running what it connected to;
// [Sandbox.Detach] leaves both.
//
// # Ports
//
// Servers in a sandbox, on whatever address inside, are reached with
// [Sandbox.Transport] for HTTP, [Sandbox.DialWebsocket], and [Sandbox.Dial] for
// all else; [Sandbox.URL] is for browsers. None needs a name to resolve, so
// that they work alike with the local cloud.
//
// # Commands and terminals
//
// [Commands.Run] runs a command to its end, as exec.Cmd's Run does; with its
// context the command ends. [Commands.Start] gives a [Command] that outlives its
// context, to wait for, signal, feed and follow; [Commands.Connect] finds one
// again. [PTY.Open] gives a [Terminal], an [io.ReadWriteCloser]. What was started
// and not ended ends with the sandbox.
//
// # Packages
//
// [Packages.Install] installs what requirements name; [Packages.Lock] pins them,
// and [Packages.InstallLock] installs what a [Lock] says, by content, from this
// machine where it was kept. [WithPackageIndex] says where else they come from.
// A requirement that is refused is a [*RequirementError], what pip fails at an
// [*InstallError].
//
// # Agents
//
// Runs of an agent, whose model and tools stay in this program, are package
// sandbox/agent. An agent that is to run as a whole in a sandbox is uploaded with
// [Sandbox.RunProgram]. That fits any architecture and leaves nothing of it on this
// machine, but the key goes into the sandbox, it starts only when all of it has
// been uploaded and installed, and typed values, tools, limits of steps, redaction
// and audit are the agent's own business there. For snippets of a model a run is
// better.
//
// # What is not here
//
// Images built from a Dockerfile: the service's templates ([WithTemplate]) and
// packages at the start of a run take their place; the local cloud has no others
// than its own. Not yet here are two more places to run: Docker containers, and
// Python in WebAssembly.
//
// # Errors
//
// What the service refuses is an [*api.Error] with its classes
// ([api.ErrNotFound] and so on); errors.Is with [api.ErrRetryable] tells whether
// the same call can succeed later. [ErrGone], with [*GoneError], is a sandbox
// that is no more, [ErrPortClosed] a port on which nothing listens;
// [ErrKernelDied], [ErrKernelLost] and [ErrKernelRestarted] are about the kernel
// behind RunCode, [ErrCommandLost] is about the connection to a command. A
// command that fails is an [*ExitError], and an exception an [*ExecutionError];
// both come beside a complete result. Files have [*fs.PathError].
//
// A call whose context ends returns within 100 ms with the context's error; the
// command is killed and the code interrupted in the background, and Close waits
// for that. Code that does not stop loses its kernel: the next call for the
// context is [ErrKernelRestarted], unless it is a step of an
// agent's run whose StepTimeout ended the code.
//
// # Code
//
// [Sandbox.RunCode] waits for code, [Sandbox.StreamCode] tells what it does as it
// does it. A [Result] has every representation that the kernel gave, among them
// [Result.DataFrame] and [Result.Chart] as typed values, and [Execution.Decode] puts the value of
// the last expression into a Go variable.
//
// Code goes over one websocket for each context, kept open. Where it is cut under
// running code another takes its place, and the execution is complete if its
// messages show that none is missing; else it is [ErrKernelLost], after what
// came. The local cloud keeps what is said in between; on E2B's service that is
// lost, for a client of the service's own stays connected. Code is never sent twice. Where there is no websocket to be had, code goes
// over HTTP: [Sandbox.CodeTransport] tells which, and what needs the websocket
// is [ErrNeedsWebsocket].
//
// # Concurrency and memory
//
// All handles are safe for concurrent use. Code of one context runs one call
// after another; commands and files have no order. Output goes to writers as it
// comes; results keep the head and the tail of it and say what they dropped.
package sandbox
