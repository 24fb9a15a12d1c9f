// Package local starts an E2B-compatible cloud inside this process. [Cloud.Option] makes
// package sandbox use it:
//
//	if _, err := local.Setup(ctx, os.Stderr); err != nil {
//		log.Print(err) // sandboxes then run the python3 of this machine as it is
//	}
//	cloud, err := local.Start(ctx)
//	if err != nil {
//		return err
//	}
//	defer cloud.Close()
//	sb, err := sandbox.Create(ctx, cloud.Option())
//
// Programs in other languages use the same cloud with the variables of [Cloud.Env]. On Linux the
// cloud needs no account, Docker, KVM or root. On macOS and Windows [EngineDocker] runs sandboxes
// in the user's Docker or Podman. This package compiles for macOS and Windows, but is not tested
// there.
//
// # How it runs
//
// For every sandbox, this program's own binary is started again inside Linux namespaces. In the new
// process, an init function of an imported package runs the sandbox's daemon (envd), long before
// main. Init functions of packages that are initialized earlier also run in this process. If that
// is a problem for a program, [WithBinary] sets another binary, such as e2bctl.
//
// When this program ends, its sandboxes end, even after kill -9.
//
// # What it needs
//
// Sandboxes run a Python of this machine: the environment that [Setup] or "e2bctl local setup"
// prepares once, or else the python3 of this machine. E2BCTL_PYTHON sets another Python. Start logs
// the features that the Python lacks. Without any Python, commands and files work. Running code
// then returns an error that explains how to install a Python.
//
// Private files are in the user's cache directory. If that directory is not writable, they are in
// XDG_RUNTIME_DIR, or else in a directory of this user inside the temporary directory.
//
// If the machine refuses namespaces, Start uses the next best isolation that protects this user's
// processes. Only [WithIsolation] with [None] makes it use plain processes. [Cloud.Isolation] and
// [Cloud.Report] return the isolation in use.
//
// If the kernel lacks nftables or its tproxy, only programs that use the proxy of their
// environment reach the network: curl, git, apt, pip and npm, and Node's own fetch with
// NODE_USE_ENV_PROXY=1 from version 24 on. [Report].Egress then contains the reason.
//
// Without namespaces (under [Restricted] and [None]), commands, files, code and the ports of
// the service work, but a sandbox has no file system of its own:
//
//   - Its home is a directory of this machine, to which $HOME and the working
//     directory of commands and code point. Relative paths are inside it. Absolute
//     paths such as /home/user/data are paths of the machine, and Restricted
//     refuses them. Temporary files belong in $TMPDIR.
//   - root and user are the same account.
//   - Restricted has no access to /dev/pts: a program on a terminal of
//     [sandbox.Sandbox.PTY] opens it as /dev/tty. A process may change only its own
//     limits and priorities. For this it must use 0 as its process id, not its number.
//   - If a user other than root calls Start, sandboxes have this program's user id.
//     Under Restricted they cannot read, write or change that user's files. A kernel
//     with a Landlock older than version 6 (Linux 6.12) does not prevent them from
//     killing that user's processes. On such a kernel, Restricted is used only if
//     [WithIsolation] requests it.
//   - Restricted has no network and no sockets, so no internet, no pip install
//     and no servers inside. None has the machine's own network, and ignores
//     [sandbox.WithInternet].
//   - If root calls Start, Restricted sandboxes run as a separate account. If that
//     account cannot enter the directories of the Python, they use the Python of /usr.
package local
