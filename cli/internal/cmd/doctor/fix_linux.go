package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// Files of the machine, below mender.root.
const (
	restriction = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
	appArmor    = "/sys/kernel/security/apparmor"
	copyPath    = "/usr/local/bin/e2bctl"
)

// mender lets AppArmor allow user namespaces to one program.
type mender struct {
	root    string // the directory of the machine's files; "" in use
	owner   int    // the user beside root whose files are safe; root in use
	admin   bool   // this process may load profiles
	program string // this program
	parser  string // the program that loads profiles; "" for none

	// try runs a sandbox with full isolation by a program, as the user whose sandboxes are mended.
	try func(ctx context.Context, program string) error
	// ask returns an error unless the answer to a question is yes.
	ask func(ctx context.Context, question string) error
}

// mend lets AppArmor of this machine allow full isolation to this program, or to a copy of it.
func mend(ctx context.Context, f *cmdutil.Factory, ask func(context.Context, string) error) (fixView, error) {
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return fixView{}, fmt.Errorf("find the file of this program: %w", err)
	}
	owner, err := sudoUser()
	if err != nil {
		return fixView{}, err
	}
	m := &mender{admin: os.Geteuid() == 0, program: program, ask: ask}
	m.parser, _ = hostprogram.FindOfRoot("apparmor_parser") // an error means that there is none
	m.try = func(ctx context.Context, program string) error { return tryAs(ctx, owner, program) }
	if !f.Quiet() {
		fmt.Fprintln(f.IO.Err, "Trying a sandbox with full isolation")
	}
	return m.mend(ctx)
}

// sudoUser returns the user who runs this program by sudo, or nil. AppArmor refuses nothing to root,
// so a sandbox of root says nothing about the sandboxes of this user.
func sudoUser() (*user.User, error) {
	id := os.Getenv("SUDO_UID")
	if os.Geteuid() != 0 || id == "" || id == "0" {
		return nil, nil //nolint:nilnil // nil is the user of this process
	}
	found, err := user.LookupId(id)
	if err != nil {
		return nil, fmt.Errorf("find the user of SUDO_UID=%s, whose sandboxes are to be mended: %w", id, err)
	}
	return found, nil
}

// tryAs runs a sandbox with full isolation by the program, as a user. A nil user is that of this process.
func tryAs(ctx context.Context, as *user.User, program string) error {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	cmd := hostprogram.Command(ctx, "/", program, "run", "--local", "--quiet", "--engine", "room", "--isolation", "full", "--", "true")
	if as != nil {
		credential, err := credentialOf(as)
		if err != nil {
			return fmt.Errorf("try it as %s: %w", as.Username, err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		cmd.Env = []string{"HOME=" + as.HomeDir, "USER=" + as.Username, "PATH=/usr/local/bin:/usr/bin:/bin"}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", shell.Quote(program), err, cmdutil.Printable(strings.TrimSpace(string(out))))
	}
	return nil
}

// credentialOf returns the ids of a user for a process.
func credentialOf(u *user.User) (*syscall.Credential, error) {
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, text := range append([]string{u.Uid, u.Gid}, groups...) {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, err
		}
		ids = append(ids, uint32(id))
	}
	return &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}, nil
}

func (m *mender) at(path string) string { return filepath.Join(m.root, path) }

// mend tries a sandbox. If AppArmor refuses it, mend loads a profile and tries again. It removes what
// did not help.
func (m *mender) mend(ctx context.Context) (view fixView, err error) {
	refused := m.try(ctx, m.at(m.program))
	if ctx.Err() != nil {
		return fixView{}, context.Cause(ctx)
	}
	if refused == nil {
		return fixView{Program: m.program}, nil
	}
	if err := m.able(); err != nil {
		return fixView{}, fmt.Errorf("mend the isolation: %w. What was refused: %w", err, refused)
	}
	p, source, err := m.plan(ctx)
	if err != nil {
		return fixView{}, fmt.Errorf("mend the isolation: %w", err)
	}
	question := fmt.Sprintf("Allow user namespaces to %s by the AppArmor profile %s?", p.Program, p.path())
	if source != "" {
		question = fmt.Sprintf("Copy %s to %s, and allow user namespaces to the copy by the AppArmor profile %s?", source, p.Program, p.path())
	}
	if err := m.ask(ctx, question); err != nil {
		return fixView{}, err
	}
	var made undo
	if err := m.apply(ctx, p, source, &made); err != nil {
		return fixView{}, errors.Join(fmt.Errorf("mend the isolation: %w", err), made.run())
	}
	if err := m.try(ctx, m.at(p.Program)); err != nil {
		err = fmt.Errorf("the profile %s did not help, and is removed again: %w", p.path(), err)
		return fixView{}, errors.Join(err, made.run())
	}
	return fixView{Changed: true, Program: p.Program, Profile: p.path()}, nil
}

// able returns an error if a profile of AppArmor would not help, or cannot be loaded.
func (m *mender) able() error {
	value, err := os.ReadFile(m.at(restriction))
	if err != nil || strings.TrimSpace(string(value)) != "1" {
		return errors.New("a profile of AppArmor would not help, because kernel.apparmor_restrict_unprivileged_userns is not 1; e2bctl doctor --local names the remedy")
	}
	if _, err := os.Stat(m.at(appArmor)); err != nil {
		return fmt.Errorf("profiles of AppArmor are loaded on the machine, not in a container: %w", err)
	}
	if m.parser == "" {
		return errors.New("apparmor_parser, which loads profiles, is not installed: apt-get install apparmor")
	}
	if !m.admin {
		return fmt.Errorf("only root may load a profile; run: sudo %s doctor --fix", shell.Quote(m.program))
	}
	return nil
}
