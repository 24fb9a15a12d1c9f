//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// accountLock is the path of the lock for the ordinary user's account. While a run holds this lock,
// no other run removes the files of that user.
const accountLock = "/var/cache/e2bctl-test.lock"

// account is the account of the ordinary user. The account has no special rights. The script
// .ci/ordinary-user defines the account. A run as this account has its own directory, which
// contains the sources and the binaries.
type account struct {
	root   string // the root of the checkout
	script string
	dir    string
	bin    string // the directory above the binaries, in the checkout
	lock   *os.File
}

// prepareAccount copies the files of a run to a directory in which the account can read them. Only
// root can do this.
func prepareAccount(ctx context.Context, w io.Writer, root, bin string, binaries []string) (*account, error) {
	a := &account{root: root, script: filepath.Join(root, ".ci/ordinary-user"), bin: bin}
	var err error
	if a.lock, err = os.OpenFile(accountLock, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, a.script, append([]string{"prepare", bin}, binaries...)...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, w
	command.ExtraFiles = []*os.File{a.lock}
	inGroup(command)
	if err := command.Run(); err != nil {
		a.lock.Close()
		return nil, fmt.Errorf("prepare the ordinary user's run: %w", err)
	}
	a.dir = strings.TrimSpace(out.String())
	return a, nil
}

// command returns the command that runs a binary as the account.
func (a *account) command(ctx context.Context, p pkg, arguments []string) *exec.Cmd {
	within := func(base, path string) string {
		return strings.TrimPrefix(strings.TrimPrefix(path, base), "/")
	}
	words := []string{"run", a.dir, within(a.root, p.dir), within(a.bin, arguments[0])}
	return exec.CommandContext(ctx, a.script, append(words, arguments[1:]...)...)
}

// clean removes the files of the run. The files that the account keeps for the next run
// stay.
func (a *account) clean(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, a.script, "clean", a.dir).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("remove the files of the ordinary user's run: %w: %s", err, out)
	}
	return errors.Join(err, a.lock.Close())
}

// canBeOrdinary reports whether the ordinary user's run is possible. If it is not, canBeOrdinary
// prints the reason.
func canBeOrdinary(w io.Writer, ci bool) (bool, error) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(w, "not root: this run is the ordinary user's")
		return false, nil
	}
	if _, err := exec.LookPath("setpriv"); err == nil {
		return true, nil
	}
	if ci {
		return false, errors.New("no setpriv: CI needs it for the ordinary user's run")
	}
	fmt.Fprintln(w, "no setpriv (util-linux): the tests do not run as an ordinary user")
	return false, nil
}

// runOf returns a value of the flag -run that selects the given tests, but only those that the
// value chosen also selects. If chosen selects none of the given tests, some is false. Nil tests
// mean all tests.
func runOf(tests []string, chosen string) (run string, some bool, err error) {
	if tests == nil {
		return chosen, true, nil
	}
	top, below, more := strings.Cut(chosen, "/")
	expression, err := regexp.Compile(top)
	if err != nil {
		return "", false, err
	}
	tests = slices.DeleteFunc(slices.Clone(tests), func(name string) bool { return !expression.MatchString(name) })
	run = "^(" + strings.Join(tests, "|") + ")$"
	if more {
		run += "/" + below
	}
	return run, len(tests) > 0, nil
}
