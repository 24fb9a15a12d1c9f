package sandbox

import (
	"context"
	"errors"
	"strings"
)

// GitConfigParams selects a configuration of git. The zero value selects the configuration of the
// user.
type GitConfigParams struct {
	GitParams
	// Repo selects the configuration of a repository.
	Repo string
	// System selects the configuration of all users. Changing it requires the User "root". Repo
	// must be empty.
	System bool
}

// SetConfig sets a value of git's configuration, such as "pull.rebase". If the key has several
// values, SetConfig returns an error and changes nothing.
func (g *Git) SetConfig(ctx context.Context, key, value string, p *GitConfigParams) error {
	return g.setConfig(ctx, "set config", p, key, value)
}

// Config returns a value of git's configuration, or "" if it is not set. It searches only the
// selected configuration: for example, the configuration of a repository does not include the
// values of the user's configuration.
func (g *Git) Config(ctx context.Context, key string, p *GitConfigParams) (string, error) {
	p = orZero(p)
	args, err := configArgs(p, "--null", "--get", "--", key)
	if err != nil {
		return "", g.failed("config", err)
	}
	out, err := g.run(ctx, "config", gitLine(args), &p.GitParams)
	// With status 1 git prints an error, unless the key is only missing.
	if exit, ok := errors.AsType[*ExitError](err); ok && exit.Result.ExitCode == 1 && exit.Result.Stderr == "" {
		return "", nil
	}
	return strings.TrimSuffix(string(out), "\x00"), err
}

// ConfigureUser sets the name and the email address for future commits.
func (g *Git) ConfigureUser(ctx context.Context, name, email string, p *GitConfigParams) error {
	return g.setConfig(ctx, "configure user", p, "user.name", name, "user.email", email)
}

// setConfig sets pairs of a key and a value.
func (g *Git) setConfig(ctx context.Context, op string, p *GitConfigParams, pairs ...string) error {
	p = orZero(p)
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

// configArgs returns git's arguments for the selected configuration.
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
