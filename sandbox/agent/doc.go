// Package agent runs the snippets that a model writes in a sandbox, one step after
// the other: state is sent typed, functions of this program are callable there,
// and what the code changed comes back.
//
// [Begin] starts a [Run]: state sent, packages there, tools callable.
// [Run.Exec] runs one snippet of a model in an ordinary kernel and gives a [Step],
// whose [Step.Observation] is for the model: what was printed, the value, and the
// exception or the [Violation] that ended it, which are no errors here, so that
// the model can mend its code. final_answer(x) ends the run. [Run.Pull] brings
// back what changed, typed. Runs in a row share the kernel, and with it the
// variables; several at once take a context each ([sandbox.Sandbox.CreateContext]).
//
// The model, its client and its key stay in this program. A [Tool] ([NewTool]) and
// a managed agent ([NewManaged]) are functions of this program, too, that code
// calls by name: an agent's loop with its credentials runs here, and what it has
// executed runs in a context or sandbox of its own.
//
// # What bounds a run
//
// The boundary is the sandbox: files, processes, network and limits of its own
// ([sandbox.WithNetwork], [sandbox.WithInternet]; of the local cloud, local.WithLimits). Within it:
//
//   - Imports: [Guard] allows [GuardModules], what Allow and Presets name, and
//     what Params.Packages install, beside which nothing is installed;
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
//     websocket, but not out of reach of the code. Params.Redact is for what a run gives out. The
//     final answer is a [state.Value]: decode it into a type, and check what must
//     hold of it.
//   - Record: Params.Audit has every step with its code, imports and refusals,
//     every call, and at the end the counters of [Metrics], tokens among them
//     ([Run.AddTokens]): one JSON document a line. [Trace] tells of steps and
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
// Pickle: what comes from a sandbox is data, never code. A client of a model, and
// prompts: examples/codeagent is a loop to copy.
package agent
