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
// # Agent runs
//
// [Sandbox.Begin] starts a [Run]: state sent, packages there, tools callable.
// [Run.Exec] runs one snippet of a model in an ordinary kernel and gives a [Step],
// whose [Step.Observation] is for the model: what was printed, the value, and the
// exception or the [Violation] that ended it, which are no errors here, so that
// the model can mend its code. final_answer(x) ends the run. [Run.Pull] brings
// back what changed, typed. Runs in a row share the kernel, and with it the
// variables; several at once take a context each ([Sandbox.CreateContext]).
//
// The model, its client and its key stay in this program. A [Tool] ([NewTool]) and
// a managed agent ([NewAgent]) are functions of this program, too, that code
// calls by name: an agent's loop with its credentials runs here, and what it has
// executed runs in a context or sandbox of its own.
//
// Who has an agent already that is to run as a whole in a sandbox uploads it with
// [Sandbox.RunProgram]. That fits any architecture, and leaves nothing of it on
// this machine, but the key goes into the sandbox, it starts only when all of it
// has been uploaded and installed, and typed values, tools, limits of steps,
// redaction and audit are the agent's own business there. What takes snippets of a
// model is better a run.
//
// # What bounds an agent run
//
// The boundary is the sandbox: files, processes, network and limits of its own
// ([WithNetwork], [WithInternet]; of the local cloud, local.WithLimits). Within it:
//
//   - Imports: [Guard] allows [GuardModules], what Allow and Presets name, and
//     what RunParams.Packages install, beside which nothing is installed;
//     submodules by their own entry or with "numpy.*". [DangerousModules] have to be named one by one, and seldom
//     should: os, subprocess, shutil and sys reach files and processes, socket
//     the network, importlib and ctypes whatever a guard forbids, and pickle runs
//     what it reads. Without a guard nothing is refused.
//   - Files and connections: a guard refuses open and connections unless
//     Guard.Functions and Guard.Network allow them, but not libraries that read and
//     write files themselves, as pandas does. A tool can hand out what code needs
//     of either.
//   - Steps: Limits.MaxSteps has no default. Two or three do for a computation,
//     four to six to transform data, six to ten to analyse it, eight to twelve for
//     research, ten to fifteen for a task of several parts. What fails is a step
//     like any other: the model tries again until they are used up.
//   - Time: Limits.StepTimeout and RunTimeout interrupt the code in the sandbox,
//     and replace a kernel whose code does not stop. After StepTimeout the step
//     has the traceback of where the code was, and the run goes on. Guard.MaxIterations and
//     MaxOperations count turns of loops, where a message about them helps the
//     model more than one about time.
//   - Memory and output: Limits.MaxMemoryBytes makes a MemoryError of too much,
//     Limits.MaxOutputBytes keeps head and tail of what is printed, and says
//     how much is missing. The sandbox's own memory and disk end all else.
//   - Tools: [ToolLimits] and [WithApproval] for each, [Budget] for agents.
//   - Secrets: a tool keeps them here. CommandParams.Envs gives one to a single
//     command; RunCodeParams.Envs stays out of the kernel's history over the
//     websocket, but not out of reach of the code. RunParams.Redact is for what a run gives out. The
//     final answer is a [state.Value]: decode it into a type, and check what must
//     hold of it.
//   - Record: RunParams.Audit has every step with its code, imports and refusals,
//     every call, and at the end the counters of [RunMetrics], tokens among them
//     ([Run.AddTokens]): one JSON document a line. [RunTrace] tells of steps and
//     calls while they happen.
//
// An error of Begin is one of the preparation, and the context is free then; one
// of Exec is of the kernel, the connection, a limit or a guard that code got
// around, while an exception of the code is none; one of Pull leaves the state as
// it was. What to answer when a run fails is for
// the caller to say: nothing here makes an answer of an error.
//
// # What is not here
//
// An interpreter that walks the syntax tree and knows a part of Python: it is slow,
// refuses much that is harmless, and has been broken out of; a guard in a real
// kernel says as much to the model, and the sandbox holds what gets around it.
// Pickle: what comes from a sandbox is data, never code. Images built from a
// Dockerfile: the service's templates ([WithTemplate]) and packages at the start
// of a run take their place; the local cloud has no others than its own. A client
// of a model, and prompts: examples/codeagent is a loop to copy.
//
// Not yet here are two more places to run: Docker containers, and Python in
// WebAssembly, which has few packages, and which smolagents had and took out again.
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
// context is [ErrKernelRestarted], unless it is a step of a [Run] whose
// Limits.StepTimeout ended the code.
//
// # Code
//
// [Sandbox.RunCode] waits for code, [Sandbox.StreamCode] tells what it does as it
// does it. A [Result] has every representation that the kernel gave, among them
// [Table] and [Chart] as typed values, and [Execution.Decode] puts the value of
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
