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

// Definition describes the content of a template. The zero value is [FromBase]. A Definition is
// immutable: its methods return a new Definition.
type Definition struct {
	image, template string // at most one of the two is set; if both are empty, the image is baseImage
	registry        *api.ImageRegistry
	platforms       []platform // the platforms that the images must support
	stages          []stage    // sources of copies, each before the stages that need it
	steps           []step
	forced          bool // later steps are not taken from the cache
	start           string
	ready           ReadyCommand
	warnings        []string
	err             error // the first error of a method
}

// step is a step of a build, with the data that is needed to upload its files.
type step struct {
	api.BuildStep
	copy   *CopyParams // set if the step copies files of this machine
	unpack bool        // unpack the copied archives
	owned  bool        // the Dockerfile names an owner

	copyLine *copyLine // the line of the Dockerfile that this step comes from; nil: it comes from no Dockerfile
}

// stage is a source that steps of a build copy from. It is built before these steps.
type stage struct {
	name, image string
	steps       []step
}

// FromBase begins with the service's default image, e2bdev/base.
func FromBase() Definition { return Definition{} }

// FromTemplate begins with a template, by its id or name. The new template has the files,
// variables, user and directory of that template. It also has the start command and the ready
// command of that template, if [Definition.Start] or [Definition.Ready] set no others.
func FromTemplate(name string) Definition {
	d := Definition{template: name}
	if name == "" {
		d.err = fmt.Errorf("FromTemplate: the name is empty")
	}
	return d
}

// ImageParams sets how to fetch an image. The zero value needs no login.
type ImageParams struct {
	// Registry is the login for the image's registry; nil means no login.
	Registry *api.ImageRegistry
}

// FromImage begins with an image, such as "debian:stable". The template has the files and variables
// of the image. If the image sets a user or a directory, the template has these, too. The image's
// own command is not run: see [Definition.Start].
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

// Warnings returns the instructions that [FromDockerfile] left out. [Build] writes them into
// the log.
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

// failed returns the definition with an error. An earlier error stays.
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

// CopyParams sets how to copy. The zero value keeps the modes, makes the current user the
// owner, and copies symlinks as symlinks.
type CopyParams struct {
	// User is the owner, "user" or "user:group"; empty means the current user.
	User string
	// Mode is the mode of the copied files and directories; 0 keeps their modes.
	Mode fs.FileMode
	// FollowLinks copies the targets of symlinks instead of the symlinks. A symlink to a
	// directory, or out of the source directory, is then an error.
	FollowLinks bool
	// Upload sends the files even if the service already has them.
	Upload bool
	// Uncompressed sends the files without compression. Use it for files that cannot be
	// compressed further.
	Uncompressed bool
}

// Copy copies files and directories of this machine. The source is a path or a pattern in
// BuildParams.Dir, with "*", "?", "[a-z]" and "**". Files that match .dockerignore or
// BuildParams.Ignore are not copied. A relative target begins at the current directory.
//
// A file is copied to the target, or into it if the target ends in "/". The entries of a directory
// are copied into the target. The matches of a pattern are also copied into the target. They keep their
// paths relative to the directory that precedes the pattern's first special character.
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

// octal returns a mode as an octal number, in the form that chmod accepts.
func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", unixMode(mode)&0o7777) }

// RunParams sets how to run a command. The zero value runs it as the current user.
type RunParams struct {
	// User is the user who runs the command; empty means the current user.
	User string
}

// Run runs a command with a shell, in the current directory and with the variables that earlier
// steps set. If the command fails, the build fails.
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

// Workdir sets the current directory for later steps and for all processes of the sandboxes. It
// creates the directory if it is missing. A relative path begins at the previous directory.
func (d Definition) Workdir(path string) Definition { return d.with("WORKDIR", path) }

// User sets the current user for later steps and for all processes of the sandboxes. It creates the
// account if it is missing. It does not apply to kernels: as on E2B's service, they run as root in
// the home of "user". Kernels run as this user only if a container or a sandbox has a single user.
func (d Definition) User(name string) Definition { return d.with("USER", name) }

// Env sets environment variables for later steps and for all processes of the sandboxes. "$NAME" in
// a value is replaced by the previous value of that variable.
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

// RemoveParams sets how to remove. The zero value removes one file as the current user.
type RemoveParams struct {
	// Recursive also removes directories. With Force, a missing file is no error.
	Recursive, Force bool
	// User is the user who removes the file; empty means the current user.
	User string
}

// Remove removes a file or directory.
func (d Definition) Remove(path string, p *RemoveParams) Definition {
	q := cmp.Or(p, &RemoveParams{})
	return d.run(q.User, "rm", flag(q.Recursive, "-r"), flag(q.Force, "-f"), shell.Quote(path))
}

// RenameParams sets how to rename. The zero value renames as the current user.
type RenameParams struct {
	// Force replaces write-protected files.
	Force bool
	// User is the user who renames the file; empty means the current user.
	User string
}

// Rename renames or moves a file or directory.
func (d Definition) Rename(from, to string, p *RenameParams) Definition {
	q := cmp.Or(p, &RenameParams{})
	return d.run(q.User, "mv", shell.Quote(from), shell.Quote(to), flag(q.Force, "-f"))
}

// MakeDirParams sets how to create a directory. The zero value uses the default mode of mkdir and
// the current user.
type MakeDirParams struct {
	// Mode is the mode of the directory; 0 means the default mode of mkdir.
	Mode fs.FileMode
	// User is the user who creates the directory; empty means the current user.
	User string
}

// MakeDir creates a directory and its missing parents.
func (d Definition) MakeDir(path string, p *MakeDirParams) Definition {
	q := cmp.Or(p, &MakeDirParams{})
	return d.run(q.User, "mkdir", "-p", flag(q.Mode != 0, "-m "+octal(q.Mode)), shell.Quote(path))
}

// SymlinkParams sets how to create a symlink. The zero value replaces no existing file and creates
// the symlink as the current user.
type SymlinkParams struct {
	// Force replaces an existing file.
	Force bool
	// User is the user who creates the symlink; empty means the current user.
	User string
}

// Symlink creates a symlink to a target.
func (d Definition) Symlink(target, link string, p *SymlinkParams) Definition {
	q := cmp.Or(p, &SymlinkParams{})
	return d.run(q.User, "ln", "-s", flag(q.Force, "-f"), shell.Quote(target), shell.Quote(link))
}

// PipParams sets how to install Python packages. The zero value installs them for all users.
type PipParams struct {
	// User installs the packages for the current user only.
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

// NpmParams sets how to install JavaScript packages. The zero value installs them for the
// project in the current directory.
type NpmParams struct {
	// Global installs the packages for all users.
	Global bool
	// Dev records the packages as development dependencies.
	Dev bool
}

// Npm installs packages with npm. Without packages it installs the dependencies in
// package.json.
func (d Definition) Npm(packages []string, p *NpmParams) Definition {
	q := cmp.Or(p, &NpmParams{})
	return d.run(flag(q.Global, "root"), append([]string{"npm", "install", flag(q.Global, "-g"), flag(q.Dev, "--save-dev")}, packages...)...)
}

// Bun installs packages with bun. Without packages it installs the dependencies in
// package.json.
func (d Definition) Bun(packages []string, p *NpmParams) Definition {
	q := cmp.Or(p, &NpmParams{})
	return d.run(flag(q.Global, "root"), append([]string{"bun", "install", flag(q.Global, "-g"), flag(q.Dev, "--dev")}, packages...)...)
}

// AptParams sets how to install system packages.
type AptParams struct {
	// NoRecommends does not install packages that are only recommended.
	NoRecommends bool
	// FixMissing continues without packages that cannot be fetched.
	FixMissing bool
}

// Apt installs system packages with apt-get.
func (d Definition) Apt(packages []string, p *AptParams) Definition {
	q := cmp.Or(p, &AptParams{})
	if len(packages) == 0 {
		return d.failed("Apt: no packages")
	}
	install := "apt-get update && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y"
	return d.run("root", append([]string{install, flag(q.NoRecommends, "--no-install-recommends"), flag(q.FixMissing, "--fix-missing")}, packages...)...)
}

// GitCloneParams sets how to clone a repository. The zero value clones all branches and commits, as
// the current user, into a directory that has the repository's name.
type GitCloneParams struct {
	// Path is the directory to clone into; empty means the repository's name.
	Path string
	// Branch is the only branch to clone; empty means that all branches are cloned and the default
	// branch is checked out.
	Branch string
	// Depth is the number of commits to clone; 0 means all.
	Depth int
	// User is the user who clones the repository; empty means the current user.
	User string
}

// GitClone clones a repository. url must not contain a password, because the text of the step
// contains url.
func (d Definition) GitClone(url string, p *GitCloneParams) Definition {
	q := cmp.Or(p, &GitCloneParams{})
	branch := flag(q.Branch != "", "--branch "+shell.Quote(q.Branch)+" --single-branch")
	depth := flag(q.Depth > 0, fmt.Sprintf("--depth %d", q.Depth))
	return d.run(q.User, "git", "clone", shell.Quote(url), branch, depth, flag(q.Path != "", shell.Quote(q.Path)))
}

// flag returns word if wanted is true, and "" otherwise.
func flag(wanted bool, word string) string {
	if !wanted {
		return ""
	}
	return word
}

// Start sets a command that starts with every sandbox of the template. The build waits until ready
// succeeds; an empty ready waits for 20 seconds. On the local cloud the command is started anew in
// each sandbox. Creating a sandbox therefore also waits for ready, at most half a minute. If ready
// only sleeps, creating a sandbox does not wait for it.
func (d Definition) Start(command string, ready ReadyCommand) Definition {
	d.start, d.ready = command, ready
	return d
}

// Ready sets the command whose success means that a sandbox of the template is ready. It sets no
// start command.
func (d Definition) Ready(ready ReadyCommand) Definition {
	d.ready = ready
	return d
}
