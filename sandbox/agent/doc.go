// Package agent runs code that a model writes. The code runs in a sandbox, one snippet at a time.
// State is sent to the sandbox with its types. The code can call functions of this program.
// Variables that the code changed can be fetched back into the state.
//
// [Begin] starts a [Run]. It sends the state, installs packages and makes the tools callable.
// [Run.Exec] runs one snippet in an ordinary kernel and returns a [Step]. [Step.Observation]
// returns the step as text for the model: the output, the value, and the exception or the
// [Violation] that ended the code. Exceptions and violations are not Go errors here, so that the
// model can correct its code. A call of final_answer(x) ends the run. [Run.Pull] fetches the
// changed variables, with their types. Consecutive runs share the kernel and its variables. Each
// concurrent run needs its own context ([sandbox.Contexts.Create]).
//
// The model, its client and its key stay in this program. A [Tool] ([NewTool]) and a managed agent
// ([NewManaged]) are functions of this program that code calls by name. The loop of a managed agent
// runs in this program, with this program's credentials. The code of the managed agent runs in
// a context or sandbox of its own. Package agentmcp makes the tools of a server of the Model
// Context Protocol available, and serves tools. A [Toolbox] calls tools without a run.
//
// # What bounds a run
//
// The boundary is the sandbox, which has its own files, processes, network and limits
// ([sandbox.WithNetwork], [sandbox.WithInternet]; in the local cloud, local.WithResources).
// Within it:
//
//   - Imports: a [Guard] allows [GuardModules], the modules named by Allow and Presets, and
//     the packages of Params.Packages. No other packages are installed. A submodule needs its
//     own entry, or an entry such as "numpy.*". [DangerousModules] must be named one by one,
//     and should rarely be allowed: os, subprocess, shutil and sys reach files and processes,
//     socket reaches the network, importlib and ctypes reach everything that a guard
//     forbids, and pickle runs code in its input. Without a guard, no import is refused.
//   - Files and connections: a guard refuses calls of open if Guard.Functions does not allow
//     them, and connections if Guard.Network does not allow them. It does not stop libraries
//     that read and write files themselves, such as pandas. A tool can provide the files or
//     connections that code needs.
//   - Steps: Limits.MaxSteps has no default. Two or three are enough for a
//     computation, four to six to transform data, six to ten to analyse it, eight to
//     twelve for research, ten to fifteen for a task of several parts. A step that
//     fails counts, too: the model can try again until the steps are used up.
//   - Time: when Limits.StepTimeout or RunTimeout is exceeded, the code in the sandbox is
//     interrupted. If the code does not stop, the kernel is replaced. After StepTimeout, the
//     step contains a traceback with the position of the code, and the run continues.
//     Guard.MaxIterations and MaxOperations count loop iterations. Use them if a message
//     about iterations helps the model more than a message about time.
//   - Memory and output: if code uses more memory than Limits.MaxMemoryBytes, it receives a
//     MemoryError. If the output is longer than Limits.MaxOutputBytes, its beginning and its
//     end are kept, with the number of missing bytes. The sandbox's own limits on memory and
//     disk bound everything else.
//   - Tools: [ToolLimits] and [WithApproval] for each tool, [Budget] for agents.
//   - Secrets: with a tool, a secret stays in this program. CommandParams.Envs passes a secret
//     to a single command. Over the websocket, RunCodeParams.Envs does not appear in the
//     kernel's history, but the code can read it. Params.Redact removes secrets from the
//     results and records of a run.
//   - Answer: the final answer is a [state.Value]. Decode it into a type, and check that you can
//     use it.
//   - Record: Params.Audit receives every step with its code, imports and refusals, and every
//     call. At the end, it receives the counters of [Metrics], including tokens
//     ([Run.SpendTokens]). Each line is a JSON document. [Trace] reports steps and calls while
//     they happen.
//
// An error of Begin means that the preparation failed. The context is then free again. An error of
// Exec comes from the kernel, the connection, a limit, or code that bypassed a guard. An exception
// in the code is not an error of Exec. After an error of Pull, the state is unchanged. This package
// never turns an error into an answer. If a run fails, the caller decides how to answer.
//
// # What is not here
//
// These things are left out on purpose:
//
//   - An interpreter of a part of Python. It would be slow and refuse much harmless code, and code
//     has escaped from such interpreters. A guard in a real kernel gives the model the same hints.
//     If code bypasses the guard, the sandbox still isolates it.
//   - Pickle. Everything from a sandbox is data, never code.
//   - A client for a model, and prompts. examples/codeagent contains a loop that you can copy.
package agent
