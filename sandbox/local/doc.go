// Package local starts an E2B-compatible cloud inside this process and hands
// back the options that point package sandbox at it:
//
//	cloud, err := local.Start(ctx)
//	if err != nil {
//		return err
//	}
//	defer cloud.Close()
//	sb, err := sandbox.Create(ctx, cloud.Options()...)
//
// Programs in other languages reach the same cloud through the variables of
// [Cloud.Env]. It needs Linux, and neither an account nor Docker, KVM or root.
//
// # How it runs
//
// Every sandbox is a process of this program's own binary, started again inside
// Linux namespaces. It becomes the agent of a sandbox in an init function of a
// package that this one imports, long before main; the init functions of the
// packages that are initialised earlier run there too. A program for which
// that matters names another binary with [WithAgent], such as e2bctl.
//
// However this program ends, kill -9 included, its sandboxes end with it.
//
// # What it needs
//
// Sandboxes run a Python of this machine: the environment that "e2bctl local
// setup" prepares, else what python3 there is. E2BCTL_PYTHON names another.
//
// Where the machine refuses namespaces, Start steps down to the next best
// isolation that keeps this user's processes safe, and never to plain processes
// unless [WithIsolation] says [None]. [Cloud.Isolation] and [Cloud.Report] tell what it is.
//
// Where the kernel lacks nftables or its tproxy, [Report].Egress says so, and only
// programs get out that use the proxy of their environment: curl, git, apt, pip and
// npm do, Node's own fetch with NODE_USE_ENV_PROXY=1 from version 24 on.
//
// Without namespaces, [Restricted] and [None], commands, files, code and the
// ports of the service work, but a sandbox has no file system of its own:
//
//   - Its home is a directory of this machine, which $HOME and the working
//     directory of commands and code name. Relative paths lead there; absolute
//     ones such as /home/user/data mean the machine's and are refused under
//     Restricted. Temporary files belong in $TMPDIR.
//   - root and user are the same account.
//   - Restricted has no access to /dev/pts: a program on a terminal of
//     [sandbox.Sandbox.PTY] opens it as /dev/tty. A process may change limits
//     and priorities of itself only, named as 0 and not by its number.
//   - Unless Start is called by root, sandboxes have this program's user id. Under
//     Restricted they can then change modes and times of that user's files,
//     and watch its directories, but not read or write them. A kernel whose Landlock
//     is older than version 6 (Linux 6.12) does not keep them from killing that
//     user's processes: there Restricted must be asked for with [WithIsolation].
//   - Restricted has no network and no sockets, so no internet, no pip install
//     and no servers inside; None has the machine's own network, whatever
//     [sandbox.WithInternet] says.
//   - Under root, Restricted runs as an account of its own, which must be able to
//     enter the directories of the Python; else it gets the one of /usr.
package local
