package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// kinds maps each kind of step to the function that runs it. The function reports whether the
// step changed files.
var kinds = map[string]func(r *run, ctx context.Context, kind string, s Step) (changed bool, err error){
	"COPY": (*run).copy, "ADD": (*run).copy, "RUN": (*run).run, "USER": (*run).setUser, "WORKDIR": (*run).setWorkdir, "ENV": (*run).setEnvs, "ARG": (*run).setEnvs,
}

// arguments returns the arguments of a step. Missing arguments are "".
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
	c := r.inTemplate(envdclient.Shell(args[0]))
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

var (
	userName = lazyregexp.New(`^[a-z_][a-z0-9_-]{0,31}$`)
	// userIDs matches two forms of a user that only builds from images accept: numeric ids,
	// and an account with a group.
	userIDs   = lazyregexp.New(`^([0-9]+(:[0-9a-z_-]+)?|[a-z_][a-z0-9_-]*:[0-9a-z_-]+)$`)
	ownerName = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
	onlyID    = lazyregexp.New(`^[0-9]+$`)
	octalMode = lazyregexp.New(`^[0-7]{1,5}$`)
	// variableName matches the names of variables that a process can have.
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// setUser runs USER.
func (r *run) setUser(ctx context.Context, kind string, s Step) (bool, error) {
	args, err := arguments(kind, s, 1, 2)
	if err != nil {
		return false, err
	}
	name, sudo := args[0], args[1] == "true"
	if r.state.Image == nil {
		name = builtInUser(name)
	}
	if userIDs().MatchString(name) {
		if r.state.Image == nil && r.target.OneUser != "" {
			return false, fmt.Errorf("USER '%s': %s", args[0], r.target.OneUser)
		}
		r.state.User, r.state.Home = name, "/"
		return false, nil // envd checks whether the ids exist
	}
	switch known := name == "root" || name == "user" || name == r.target.User; {
	case !userName().MatchString(name):
		return false, fmt.Errorf("USER '%s': it must be the name of a user: lower-case letters, digits, hyphens and underscores", clip.Text(name, maxRepeated))
	case known:
		r.state.User, r.state.Home = name, ""
		return false, nil // these accounts already have sudo
	case r.target.OneUser != "" && (!r.target.Chosen || r.state.Image == nil):
		return false, fmt.Errorf("USER '%s': %s", name, r.target.OneUser)
	}
	inside, err := r.sandbox(ctx)
	if err != nil {
		return false, err
	}
	home, changed, err := inside.client.Account(ctx, name, sudo)
	if err != nil {
		return false, fmt.Errorf("USER '%s': %w", name, err)
	}
	if !path.IsAbs(home) {
		return false, fmt.Errorf("USER '%s': it has no home", name)
	}
	r.state.User, r.state.Home = name, home
	return changed, nil
}

// builtInUser returns the account of a user in a built-in template. The user may be given as
// ids, or as an account with its own group.
func builtInUser(name string) string {
	accounts := map[string]string{"0": "root", strconv.Itoa(protocol.UserID): "user"}
	who, group, grouped := strings.Cut(name, ":")
	who, group = cmp.Or(accounts[who], who), cmp.Or(accounts[group], group)
	if grouped && group != who {
		return name
	}
	return who
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
	inside, err := r.sandbox(ctx)
	if err != nil {
		return false, err
	}
	changed, err := inside.client.MakeDir(ctx, dir, name)
	if err != nil {
		return false, fmt.Errorf("WORKDIR '%s': %w", clip.Text(dir, maxRepeated), err)
	}
	r.state.Workdir = dir
	return changed, nil
}

// absolute returns the absolute path of p in the sandbox. A relative p is below the working
// directory.
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
	search := cmp.Or(r.options.Path, imagePath)
	if r.state.Image != nil {
		search = imagePath
	}
	return expand(text, func(variable string) (string, bool) {
		value, set := r.state.Envs[variable]
		if !set {
			value, set = map[string]string{"HOME": home, "USER": name, "LOGNAME": name, "PATH": search}[variable]
		}
		return value, set
	})
}

// imagePath is the PATH in images that do not set one.
const imagePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxEnvs bounds the size of a template's variables in bytes. It leaves space for the variables
// of each sandbox.
const maxEnvs = 512 << 10

// setEnvs runs ENV and ARG.
func (r *run) setEnvs(_ context.Context, kind string, s Step) (bool, error) {
	if len(s.Args) == 0 || len(s.Args)%2 != 0 {
		return false, fmt.Errorf("%s has %d args, and takes names and values in turn", kind, len(s.Args))
	}
	if r.state.Envs == nil {
		r.state.Envs = map[string]string{}
	}
	values := map[string]string{} // each value sees the variables as before this step
	for i := 0; i < len(s.Args); i += 2 {
		name, value := s.Args[i], s.Args[i+1]
		if !variableName().MatchString(name) || strings.Contains(value, "\x00") {
			return false, fmt.Errorf("%s has %q, which cannot be an environment variable", kind, clip.Text(name, maxRepeated))
		}
		values[name] = r.expand(value)
	}
	maps.Copy(r.state.Envs, values)
	if err := checkSize(r.state.Envs); err != nil {
		return false, fmt.Errorf("%s: %w", kind, err)
	}
	return false, nil
}

// checkSize returns an error if the variables exceed maxEnvs.
func checkSize(envs map[string]string) error {
	size := 0
	for name, value := range envs {
		size += len(name) + len(value)
	}
	if size > maxEnvs {
		return fmt.Errorf("the variables are too large: a sandbox takes %d KiB in all", maxEnvs>>10)
	}
	return nil
}
