package builds

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// kinds are the steps that there are. Each reports whether it changed files.
var kinds = map[string]func(r *run, ctx context.Context, kind string, s Step) (changed bool, err error){
	"COPY": (*run).copy, "ADD": (*run).copy, "RUN": (*run).run, "USER": (*run).setUser, "WORKDIR": (*run).setWorkdir, "ENV": (*run).setEnvs, "ARG": (*run).setEnvs,
}

// arguments returns those of a step, "" for what is not given.
func arguments(kind string, s Step, least, most int) ([]string, error) {
	if n := len(s.Args); n < least || n > most {
		return nil, fmt.Errorf("%s has %d args, and takes %d to %d", kind, n, least, most)
	}
	return append(s.Args[:len(s.Args):len(s.Args)], make([]string, most-len(s.Args))...), nil
}

// run runs RUN.
func (r *run) run(ctx context.Context, kind string, s Step) (bool, error) {
	args, err := arguments(kind, s, 1, 2)
	if err != nil {
		return false, err
	}
	c := r.inTemplate(args[0])
	if user := args[1]; user != "" {
		if c.User = user; r.state.Workdir == "" {
			c.Dir = "~"
		}
	}
	if err := r.command(ctx, c); err != nil {
		return false, fmt.Errorf("failed to run command '%s': %w", clip.Text(args[0], maxRepeated), err)
	}
	return true, nil
}

// asRoot runs a script of ours, which never reads what it is told as code.
func (r *run) asRoot(ctx context.Context, script string, args ...string) (output string, err error) {
	var out strings.Builder
	c := envdclient.Command{Args: append([]string{"/bin/bash", "-c", script, "build"}, args...), User: "root", Dir: "/", Stdout: &limited{&out, maxLine}}
	err = r.command(ctx, c)
	return strings.TrimSpace(out.String()), err
}

// limited passes on the first bytes that are written to it.
type limited struct {
	to   *strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	_, _ = l.to.Write(p[:n]) // never fails
	return len(p), nil
}

var (
	//go:embed copy.sh
	copyScript string
	//go:embed user.sh
	userScript string
	//go:embed workdir.sh
	workdirScript string

	userName  = lazyregexp.New(`^[a-z_][a-z0-9_-]{0,31}$`)
	ownerName = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
	octalMode = lazyregexp.New(`^[0-7]{1,5}$`)
	// variableName is one that processes can have.
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// setUser runs USER.
func (r *run) setUser(ctx context.Context, kind string, s Step) (bool, error) {
	args, err := arguments(kind, s, 1, 2)
	if err != nil {
		return false, err
	}
	name, sudo := args[0], args[1] == "true"
	switch known := name == "root" || name == "user"; {
	case !userName().MatchString(name):
		return false, fmt.Errorf("USER '%s': it must be the name of a user: lower-case letters, digits, hyphens and underscores", clip.Text(name, maxRepeated))
	case known:
		r.state.User, r.state.Home = name, ""
		return false, nil // who has sudo already
	case r.target.OneID:
		return false, fmt.Errorf("not supported by the isolation of this local cloud: USER '%s': sandboxes have only one user id, of root and user; as root, or with /etc/subuid, they have many", name)
	}
	out, err := r.asRoot(ctx, userScript, name, map[bool]string{true: "sudo"}[sudo])
	if err != nil {
		return false, fmt.Errorf("USER '%s': %w", name, err)
	}
	changed, home, _ := strings.Cut(out, " ")
	if !path.IsAbs(home) {
		return false, fmt.Errorf("USER '%s': it has no home", name)
	}
	r.state.User, r.state.Home = name, home
	return changed == "changed", nil
}

// setWorkdir runs WORKDIR.
func (r *run) setWorkdir(ctx context.Context, kind string, s Step) (bool, error) {
	args, err := arguments(kind, s, 1, 1)
	if err != nil {
		return false, err
	}
	if args[0] == "" {
		return false, errors.New("WORKDIR has no path")
	}
	name, _ := r.user()
	dir := r.absolute(r.expand(args[0]))
	out, err := r.asRoot(ctx, workdirScript, dir, name)
	if err != nil {
		return false, fmt.Errorf("WORKDIR '%s': %w", clip.Text(dir, maxRepeated), err)
	}
	r.state.Workdir = dir
	return out == "changed", nil
}

// absolute returns a path of the sandbox as it is seen from the working directory.
func (r *run) absolute(p string) string {
	_, home := r.user()
	switch {
	case p == "~" || strings.HasPrefix(p, "~/"):
		p = home + p[1:]
	case !path.IsAbs(p):
		p = path.Join(cmp.Or(r.state.Workdir, home), p)
	}
	return path.Clean(p)
}

// expand replaces the variables in a text by their values.
func (r *run) expand(text string) string {
	name, home := r.user()
	return expand(text, func(variable string) string {
		if value, ok := r.state.Envs[variable]; ok {
			return value
		}
		return map[string]string{"HOME": home, "USER": name, "LOGNAME": name, "PATH": r.options.Path}[variable]
	})
}

// maxEnvs bounds the variables, of which sandboxes may be given more.
const maxEnvs = 512 << 10

// setEnvs runs ENV and ARG.
func (r *run) setEnvs(_ context.Context, kind string, s Step) (bool, error) {
	if len(s.Args) == 0 || len(s.Args)%2 != 0 {
		return false, fmt.Errorf("%s has %d args, and takes names and values in turn", kind, len(s.Args))
	}
	if r.state.Envs == nil {
		r.state.Envs = map[string]string{}
	}
	values := map[string]string{} // all see the variables as they were before
	for i := 0; i < len(s.Args); i += 2 {
		name, value := s.Args[i], s.Args[i+1]
		if !variableName().MatchString(name) || strings.Contains(value, "\x00") {
			return false, fmt.Errorf("%s has %q, which cannot be an environment variable", kind, clip.Text(name, maxRepeated))
		}
		values[name] = r.expand(value)
	}
	maps.Copy(r.state.Envs, values)
	size := 0
	for name, value := range r.state.Envs {
		size += len(name) + len(value)
	}
	if size > maxEnvs {
		return false, fmt.Errorf("%s: the variables are too large: a sandbox takes %d KiB in all", kind, maxEnvs>>10)
	}
	return false, nil
}

// copy runs COPY and ADD. The archive is unpacked in the sandbox, by its programs: it is
// only bytes for this process.
func (r *run) copy(ctx context.Context, kind string, s Step) (bool, error) {
	args, err := arguments(kind, s, 2, 4)
	if err != nil {
		return false, err
	}
	source, destination, owner, mode := args[0], r.expand(args[1]), args[2], args[3]
	name, _ := r.user()
	owner = cmp.Or(owner, name)
	if !strings.Contains(owner, ":") {
		owner += ":" + owner
	}
	switch {
	case source == "" || destination == "":
		return false, fmt.Errorf("%s has an empty source or destination", kind)
	case !ownerName().MatchString(owner):
		return false, fmt.Errorf("%s: the owner '%s' must be user or user:group", kind, clip.Text(owner, maxRepeated))
	case mode != "" && !octalMode().MatchString(mode):
		return false, fmt.Errorf("%s: the mode '%s' must be octal", kind, clip.Text(mode, maxRepeated))
	case s.FilesHash == "":
		return false, fmt.Errorf("%s has no filesHash", kind)
	}
	archive, size, err := r.uploads.open(s.FilesHash)
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("%s %s: its files were not uploaded, or were removed to make room: build it again", kind, clip.Text(source, maxRepeated))
	}
	if err != nil {
		return false, err
	}
	defer archive.Close()
	inside, err := r.sandbox(ctx)
	if err != nil {
		return false, err
	}
	const unpacked = "/tmp/.e2bctl-build" // with which the script begins anew
	if _, err := r.asRoot(ctx, `rm -rf -- "$1" && mkdir -m 0700 -- "$1"`, unpacked); err != nil {
		return false, err
	}
	if err := inside.client.WriteFile(ctx, unpacked+"/archive", "root", archive, size); err != nil {
		return false, fmt.Errorf("%s %s: %w", kind, clip.Text(source, maxRepeated), err)
	}
	to := r.absolute(destination)
	if strings.HasSuffix(destination, "/") {
		to = strings.TrimSuffix(to, "/") + "/"
	}
	if _, err := r.asRoot(ctx, copyScript, unpacked, source, to, owner, mode, name); err != nil {
		return false, fmt.Errorf("%s %s: %w", kind, clip.Text(source, maxRepeated), err)
	}
	return true, nil
}
