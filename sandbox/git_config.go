package sandbox

import (
	"context"
	"errors"
	"strings"
)

// GitConfigParams sets which configuration of git is meant. The zero value is that
// of the user.
type GitConfigParams struct {
	GitParams
	// Repo is the repository whose own configuration is meant.
	Repo string
	// System means the configuration of all users. To change it, User has to be
	// "root". It excludes Repo.
	System bool
}

// SetConfig sets a value of git's configuration, such as "pull.rebase". A key that
// has several values there is left as it is, and the error says so.
func (g *Git) SetConfig(ctx context.Context, key, value string, p *GitConfigParams) error {
	return g.setConfig(ctx, "set config", p, key, value)
}

// Config returns a value of git's configuration, or "" if it is not set there.
// Other configurations are not searched: the one of a repository does not include
// the user's.
func (g *Git) Config(ctx context.Context, key string, p *GitConfigParams) (string, error) {
	p = given(p)
	args, err := configArgs(p, "--null", "--get", "--", key)
	if err != nil {
		return "", g.failed("config", err)
	}
	out, err := g.run(ctx, "config", gitLine(args), &p.GitParams)
	// With status 1 git says why, unless the key is merely not set.
	if exit, ok := errors.AsType[*ExitError](err); ok && exit.Result.ExitCode == 1 && exit.Result.Stderr == "" {
		return "", nil
	}
	return strings.TrimSuffix(string(out), "\x00"), err
}

// ConfigureUser sets the name and email address for the commits to come.
func (g *Git) ConfigureUser(ctx context.Context, name, email string, p *GitConfigParams) error {
	return g.setConfig(ctx, "configure user", p, "user.name", name, "user.email", email)
}

// setConfig sets pairs of a key and a value.
func (g *Git) setConfig(ctx context.Context, op string, p *GitConfigParams, pairs ...string) error {
	p = given(p)
	var lines []string
	for i := 0; i < len(pairs); i += 2 {
		args, err := configArgs(p, "--", pairs[i], pairs[i+1])
		if err != nil {
			return g.failed(op, err)
		}
		lines = append(lines, gitLine(args))
	}
	_, err := g.run(ctx, op, strings.Join(lines, " && "), &p.GitParams)
	return err
}

// configArgs returns git's arguments for the configuration that is meant.
func configArgs(p *GitConfigParams, more ...string) ([]string, error) {
	var args []string
	switch {
	case p.Repo != "" && p.System:
		return nil, errors.New("GitConfigParams has both Repo and System: choose one")
	case p.Repo != "":
		args = []string{"-C", p.Repo, "config", "--local"}
	case p.System:
		args = []string{"config", "--system"}
	default:
		args = []string{"config", "--global"}
	}
	return append(args, more...), nil
}
