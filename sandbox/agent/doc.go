// Package agent runs the code that a model writes in a sandbox, one snippet at a time. State is
// sent to the sandbox with its types, the code can call functions of this program, and the
// changes by the code can be brought back.
//
// [Begin] starts a [Run]: it sends the state, installs packages and makes the tools
// callable. [Run.Exec] runs one snippet in an ordinary kernel and returns a [Step]. Its
// [Step.Observation] is the text for the model: the output, the value, and the exception or the
// [Violation] that ended the code. Exceptions and violations are not Go errors here, so that
// the model can correct its code. A call of final_answer(x) ends the run. [Run.Pull] brings
// back the changed variables, with their types. Consecutive runs share the kernel, and with it
// the variables; concurrent runs each need a context of their own ([sandbox.Contexts.Create]).
//
// The model, its client and its key stay in this program. A [Tool] ([NewTool]) and a managed
// agent ([NewManaged]) are functions of this program that code calls by name. The loop of a
// managed agent runs in this program, with its credentials. Its code runs in a context or
// sandbox of its own. Package agentmcp makes the tools of a server of the Model Context
// Protocol available, and serves tools. A [Toolbox] calls tools without a run.
//
// # What bounds a run
//
// The boundary is the sandbox, which has its own files, processes, network and limits
// ([sandbox.WithNetwork], [sandbox.WithInternet]; in the local cloud, local.WithResources).
// Within it:
//
//   - Imports: [Guard] allows [GuardModules], the modules named by Allow and Presets, and
//     the packages of Params.Packages; nothing else is installed. Submodules need an entry
//     of their own or one such as "numpy.*". [DangerousModules] must be named one by one,
//     and rarely should be: os, subprocess, shutil and sys reach files and processes,
//     socket reaches the network, importlib and ctypes reach everything that a guard
//     forbids, and pickle runs code in its input. Without a guard nothing is refused.
//   - Files and connections: a guard refuses open and connections unless
//     Guard.Functions and Guard.Network allow them. It does not refuse libraries
//     that read and write files themselves, as pandas does. A tool can provide the
//     files or connections that code needs.
//   - Steps: Limits.MaxSteps has no default. Two or three are enough for a
//     computation, four to six to transform data, six to ten to analyse it, eight to
//     twelve for research, ten to fifteen for a task of several parts. A step that
//     fails counts like any other: the model can try again until the steps are used
//     up.
//   - Time: Limits.StepTimeout and RunTimeout interrupt the code in the sandbox,
//     and replace the kernel if its code does not stop. After StepTimeout the step
//     has the traceback of where the code was, and the run goes on.
//     Guard.MaxIterations and MaxOperations count loop iterations, for cases where a
//     message about them helps the model more than one about time.
//   - Memory and output: Limits.MaxMemoryBytes turns the use of too much memory into a
//     MemoryError. Limits.MaxOutputBytes keeps the head and the tail of the output and says
//     how much is missing. The sandbox's own limits on memory and disk bound everything
//     else.
//   - Tools: [ToolLimits] and [WithApproval] for each tool, [Budget] for agents.
//   - Secrets: a tool keeps them in this program. CommandParams.Envs passes one to a single
//     command. RunCodeParams.Envs stays out of the kernel's history over the websocket, but
//     not out of reach of the code. Params.Redact removes secrets from the results and
//     records of a run. The final answer is a [state.Value]: decode it into a type, and
//     check that it is one you can use.
//   - Record: Params.Audit receives every step with its code, imports and refusals,
//     every call, and at the end the counters of [Metrics], including tokens
//     ([Run.SpendTokens]): one JSON document per line. [Trace] reports steps and
//     calls while they happen.
//
// An error of Begin means that the preparation failed; the context is then free again. An error
// of Exec comes from the kernel, the connection, a limit, or code that bypassed a guard. An
// exception in the code is not an error of Exec. An error of Pull leaves the state unchanged.
// This package never turns an error into an answer. The caller decides how to answer when a run
// fails.
//
// # What is not here
//
// These things are left out on purpose:
//
//   - An interpreter of a part of Python. It would be slow and refuse much harmless code, and code
//     has escaped from such interpreters. A guard in a real kernel gives the model the same hints,
//     and the sandbox contains code that bypasses the guard.
//   - Pickle. Everything from a sandbox is data, never code.
//   - A client for a model, and prompts. examples/codeagent is a loop to copy.
package agent
