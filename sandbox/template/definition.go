package template

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// baseImage is the default base image of E2B's builders.
const baseImage = "e2bdev/base"

// Definition says what a template consists of. The zero value is [FromBase]. It is
// immutable: its methods return a new one.
type Definition struct {
	image, template string // at most one; neither means baseImage
	registry        *api.ImageRegistry
	platforms       []platform // that images are to be for
	stages          []stage    // that steps copy from, each before those that need it
	steps           []step
	forced          bool // steps from here on are done anew
	start           string
	ready           ReadyCommand
	warnings        []string
	err             error // the first thing that is wrong
}

// step is a step, with what only the upload of its files needs.
type step struct {
	api.BuildStep
	copy   *CopyParams // set for COPY of files of this machine
	unpack bool        // what it copies, if that is an archive
	owned  bool        // has an owner that the Dockerfile names

	copyLine *copyLine // of a Dockerfile; nil: the step is no source of one
}

// stage is built for what steps copy from it.
type stage struct {
	name, image string
	steps       []step
}

// FromBase begins with the service's default image, e2bdev/base.
func FromBase() Definition { return Definition{} }

// FromTemplate begins with a template, by its id or name. It takes over the files, variables,
// user and directory, and the start and ready commands unless [Definition.Start] or
// [Definition.Ready] set others.
func FromTemplate(name string) Definition {
	d := Definition{template: name}
	if name == "" {
		d.err = fmt.Errorf("FromTemplate: the name is empty")
	}
	return d
}

// ImageParams says how to get an image. The zero value needs no login.
type ImageParams struct {
	// Registry is the login for the image's registry. May be nil.
	Registry *api.ImageRegistry
}

// FromImage begins with an image, such as "debian:stable". It takes over the files and
// variables, and the user and directory if the image names them. The image's program is not
// run: see [Definition.Start].
func FromImage(image string, p *ImageParams) Definition {
	d := Definition{image: image}
	if image == "" {
		d.err = fmt.Errorf("FromImage: the image is empty")
	}
	if p != nil && p.Registry != nil {
		registry := *p.Registry
		d.registry = &registry
	}
	return d
}

// Warnings returns what [FromDockerfile] left out. [Build] puts it into the log.
func (d Definition) Warnings() []string { return slices.Clone(d.warnings) }

// with returns the definition with one more step.
func (d Definition) with(kind string, args ...string) Definition {
	return d.withStep(step{BuildStep: api.BuildStep{Type: kind, Args: args}})
}

func (d Definition) withStep(s step) Definition {
	s.Force = s.Force || d.forced
	d.steps = append(slices.Clip(d.steps), s)
	return d
}

// failed returns the definition with an error, unless there is one already.
func (d Definition) failed(format string, args ...any) Definition {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	return d
}

// SkipCache makes the service repeat all later steps, even if their results are cached.
// BuildParams.NoCache repeats all steps.
func (d Definition) SkipCache() Definition {
	d.forced = true
	return d
}

// CopyParams says how to copy. The zero value keeps the modes, gives the copies to the
// current user, and copies symlinks as such.
type CopyParams struct {
	// User is the owner, "user" or "user:group"; empty means the current user.
	User string
	// Mode is the mode of the copied files and directories; 0 keeps theirs.
	Mode fs.FileMode
	// FollowLinks copies the files that symlinks lead to. A symlink that leads to a
	// directory, or out of the directory to copy from, is then an error.
	FollowLinks bool
	// Upload sends the files even if the service has them.
	Upload bool
	// Uncompressed sends them as they are, for files that do not get smaller.
	Uncompressed bool
}

// Copy copies files and directories of this machine. The source is a path or a pattern
// in BuildParams.Dir, with "*", "?", "[a-z]" and "**". Files that .dockerignore and
// BuildParams.Ignore name are left out. A relative target begins at the current directory.
//
// A file becomes the target, or goes into it if the target ends in "/". The entries of a
// directory go into the target. So do the matches of a pattern, with their paths below the
// directory before the pattern's first special character.
func (d Definition) Copy(source, target string, p *CopyParams) Definition {
	params := CopyParams{}
	if p != nil {
		params = *p
	}
	if _, err := contextPath(source); err != nil {
		return d.failed("%w", err)
	}
	mode := ""
	if params.Mode != 0 {
		mode = octal(params.Mode)
	}
	args := []string{source, target, params.User, mode}
	return d.withStep(step{BuildStep: api.BuildStep{Type: "COPY", Args: args, Force: params.Upload}, copy: &params})
}

// octal returns a mode as chmod takes it.
func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", unixMode(mode)&0o7777) }

// RunParams says how to run a command. The zero value is the current user.
type RunParams struct {
	// User is the account that runs it; empty means the current user.
	User string
}

// Run runs a command with a shell, in the current directory and with the variables so far.
// If it fails, so does the build.
func (d Definition) Run(command string, p *RunParams) Definition {
	if p == nil {
		p = &RunParams{}
	}
	return d.run(p.User, command)
}

func (d Definition) run(user string, words ...string) Definition {
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
	command := strings.Join(words, " ")
	if strings.TrimSpace(command) == "" {
		return d.failed("Run: the command is empty")
	}
	if user != "" {
		return d.with("RUN", command, user)
	}
	return d.with("RUN", command)
}

// Workdir sets the current directory of the later steps and of everything that runs in the
// sandboxes. A missing directory is made. A relative path begins at the previous one.
func (d Definition) Workdir(path string) Definition { return d.with("WORKDIR", path) }

// User sets the current user of the later steps and of everything that runs in the sandboxes.
// A missing account is made. Kernels run as root all the same, in the home of "user", as on
// the service. Only where a container or a sandbox has one user do they run as that user.
func (d Definition) User(name string) Definition { return d.with("USER", name) }

// Env sets environment variables of the later steps and of everything that runs in the
// sandboxes. "$NAME" in a value stands for the variable's previous value.
func (d Definition) Env(variables map[string]string) Definition {
	if len(variables) == 0 {
		return d
	}
	var args []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		args = append(args, name, variables[name])
	}
	return d.with("ENV", args...)
}

// RemoveParams says how to remove. The zero value removes one file as the current user.
type RemoveParams struct {
	// Recursive also removes directories. Force accepts a missing file.
	Recursive, Force bool
	// User is the account that does it; empty means the current user.
	User string
}

// Remove removes a file or directory.
func (d Definition) Remove(path string, p *RemoveParams) Definition {
	q := cmp.Or(p, &RemoveParams{})
	return d.run(q.User, "rm", flag(q.Recursive, "-r"), flag(q.Force, "-f"), shell.Quote(path))
}

// RenameParams says how to rename. The zero value renames as the current user.
type RenameParams struct {
	// Force replaces files that may not be written.
	Force bool
	// User is the account that does it; empty means the current user.
	User string
}

// Rename renames a file or directory, or moves it.
func (d Definition) Rename(from, to string, p *RenameParams) Definition {
	q := cmp.Or(p, &RenameParams{})
	return d.run(q.User, "mv", shell.Quote(from), shell.Quote(to), flag(q.Force, "-f"))
}

// MakeDirParams says how to make a directory. The zero value is the usual mode, as the
// current user.
type MakeDirParams struct {
	// Mode is its mode; 0 means the usual one.
	Mode fs.FileMode
	// User is the account that does it; empty means the current user.
	User string
}

// MakeDir makes a directory and its missing parents.
func (d Definition) MakeDir(path string, p *MakeDirParams) Definition {
	q := cmp.Or(p, &MakeDirParams{})
	return d.run(q.User, "mkdir", "-p", flag(q.Mode != 0, "-m "+octal(q.Mode)), shell.Quote(path))
}

// SymlinkParams says how to make a symlink. The zero value does not replace, as the current
// user.
type SymlinkParams struct {
	// Force replaces a file that is there.
	Force bool
	// User is the account that does it; empty means the current user.
	User string
}

// Symlink makes a symlink that leads to a target.
func (d Definition) Symlink(target, link string, p *SymlinkParams) Definition {
	q := cmp.Or(p, &SymlinkParams{})
	return d.run(q.User, "ln", "-s", flag(q.Force, "-f"), shell.Quote(target), shell.Quote(link))
}

// PipParams says how to install packages of Python. The zero value installs them for all users.
type PipParams struct {
	// User installs them for the current user only.
	User bool
}

// Pip installs packages with pip. Without packages it installs the project in the current
// directory.
func (d Definition) Pip(packages []string, p *PipParams) Definition {
	q := cmp.Or(p, &PipParams{})
	if len(packages) == 0 {
		packages = []string{"."}
	}
	return d.run(flag(!q.User, "root"), append([]string{"pip", "install", flag(q.User, "--user")}, packages...)...)
}

// NpmParams says how to install packages of JavaScript. The zero value installs them for the
// project in the current directory.
type NpmParams struct {
	// Global installs them for everyone.
	Global bool
	// Dev records them as needed for development only.
	Dev bool
}

// Npm installs packages with npm. Without packages it installs those of package.json.
func (d Definition) Npm(packages []string, p *NpmParams) Definition {
	q := cmp.Or(p, &NpmParams{})
	return d.run(flag(q.Global, "root"), append([]string{"npm", "install", flag(q.Global, "-g"), flag(q.Dev, "--save-dev")}, packages...)...)
}

// Bun installs packages with bun. Without packages it installs those of package.json.
func (d Definition) Bun(packages []string, p *NpmParams) Definition {
	q := cmp.Or(p, &NpmParams{})
	return d.run(flag(q.Global, "root"), append([]string{"bun", "install", flag(q.Global, "-g"), flag(q.Dev, "--dev")}, packages...)...)
}

// AptParams says how to install packages of the system.
type AptParams struct {
	// NoRecommends leaves out packages that others only recommend.
	NoRecommends bool
	// FixMissing goes on without packages that cannot be fetched.
	FixMissing bool
}

// Apt installs packages of the system with apt-get.
func (d Definition) Apt(packages []string, p *AptParams) Definition {
	q := cmp.Or(p, &AptParams{})
	if len(packages) == 0 {
		return d.failed("Apt: no packages")
	}
	install := "apt-get update && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y"
	return d.run("root", append([]string{install, flag(q.NoRecommends, "--no-install-recommends"), flag(q.FixMissing, "--fix-missing")}, packages...)...)
}

// GitCloneParams says how to clone. The zero value clones all of it, as the current user,
// into a directory of the repository's name.
type GitCloneParams struct {
	// Path is the directory to clone into; empty means one of the repository's name.
	Path string
	// Branch is the only branch to clone; empty means all, with the default one checked out.
	Branch string
	// Depth is the number of commits to clone; 0 means all.
	Depth int
	// User is the account that does it; empty means the current user.
	User string
}

// GitClone clones a repository. The address is in the text of the step, so it must not
// have a password.
func (d Definition) GitClone(url string, p *GitCloneParams) Definition {
	q := cmp.Or(p, &GitCloneParams{})
	branch := flag(q.Branch != "", "--branch "+shell.Quote(q.Branch)+" --single-branch")
	depth := flag(q.Depth > 0, fmt.Sprintf("--depth %d", q.Depth))
	return d.run(q.User, "git", "clone", shell.Quote(url), branch, depth, flag(q.Path != "", shell.Quote(q.Path)))
}

// flag returns the word if it is wanted.
func flag(wanted bool, word string) string {
	if !wanted {
		return ""
	}
	return word
}

// Start has a command run in every sandbox of the template from its start on. The build
// waits until ready succeeds; an empty one is a wait of 20 seconds. On the local cloud, where
// the command is run anew in each sandbox, making one waits for it, too: at most half
// a minute, and not if it only sleeps.
func (d Definition) Start(command string, ready ReadyCommand) Definition {
	d.start, d.ready = command, ready
	return d
}

// Ready says when a sandbox of the template is ready, without a command to start.
func (d Definition) Ready(ready ReadyCommand) Definition {
	d.ready = ready
	return d
}
