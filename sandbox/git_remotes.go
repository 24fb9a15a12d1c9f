package sandbox

import (
	"context"
	"errors"
	"net/url"
	"strings"
)

// GitAddRemoteParams sets how to add a remote.
type GitAddRemoteParams struct {
	GitParams
	// Overwrite changes the address of an existing remote of this name, instead of returning an
	// error.
	Overwrite bool
	// Fetch also fetches the remote's branches.
	Fetch bool
	// Credentials are used only for Fetch in this call; nil means none.
	Credentials *GitCredentials
}

// AddRemote adds a remote, which is a name for the address of another repository. It refuses an
// address with a password, because git would store the password in the repository's configuration.
// If the remote was added but Fetch fails, the remote remains.
func (g *Git) AddRemote(ctx context.Context, repo, name, address string, p *GitAddRemoteParams) error {
	p = orZero(p)
	err := plainWords("a remote", name)
	if err == nil {
		err = withoutPassword(address)
	}
	if err != nil {
		return g.failed("add remote", err)
	}
	command := gitLine([]string{"-C", repo, "remote", "add", "--", name, address})
	if p.Overwrite {
		known := gitLine([]string{"-C", repo, "remote", "get-url", "--", name}) + " >/dev/null 2>&1"
		change := gitLine([]string{"-C", repo, "remote", "set-url", "--", name, address})
		command = "if " + known + "; then " + change + "; else " + command + "; fi"
	}
	if _, err := g.run(ctx, "add remote", command, &p.GitParams); err != nil || !p.Fetch {
		return err
	}
	return g.exchange(ctx, "fetch", repo, []string{"-C", repo, "fetch", "--quiet"}, name, "", p.Credentials, &p.GitParams)
}

// RemoteURL returns the address of a remote, or "" if the repository has no such remote.
func (g *Git) RemoteURL(ctx context.Context, repo, name string, p *GitParams) (string, error) {
	out, err := g.run(ctx, "remote URL", gitLine([]string{"-C", repo, "remote", "get-url", "--", name}), orZero(p))
	if exit, ok := errors.AsType[*ExitError](err); ok && strings.Contains(exit.Result.Stderr, "No such remote") {
		return "", nil
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// withoutPassword returns an error for an address with a password, because git would write the
// password into the repository.
func withoutPassword(address string) error {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret {
			return errors.New("the address has a password, which would stay in the repository: use Credentials")
		}
	}
	return nil
}
