package sandbox

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/e2bctl/e2bctl/api"
)

// GitCredentials authorize one call to a remote over http or https. They are not
// stored anywhere: they enter the sandbox on the input of one shell, which hands
// them to git through a pipe that can be read once, and git asks for them only
// for the remote's host. They are on no command line, in no environment and in no
// file, and git's own credential helpers are off. Code of the same user that runs
// in the sandbox at that time could still read them: use a token that is
// short-lived and valid only for this repository.
type GitCredentials struct {
	// Username is the account; many services accept any name with a token.
	Username string
	// Password is the password or token; its type keeps it out of logs.
	Password api.Key
}

// credentialShell reads the credentials from its input and leaves them in a pipe,
// on descriptor 9, for the command line that follows. printf is built into the
// shell, and the shell exports nothing.
const credentialShell = `set +ax; IFS= read -r -d '' e2b_u; IFS= read -r -d '' e2b_p; ` +
	`exec 9< <(printf 'username=%s\npassword=%s\n' "$e2b_u" "$e2b_p") </dev/null; unset e2b_u e2b_p; exec `

// credentialHelper answers git's request for credentials, and ignores requests to
// store some.
const credentialHelper = `!f() { test "$1" != get || cat <&9; }; f`

// withCredentials runs git with credentials for address.
func (g *Git) withCredentials(ctx context.Context, op string, c *GitCredentials, address string, args []string, p *GitParams) error {
	host, err := credentialHost(address)
	if err == nil && strings.ContainsAny(c.Username+string(c.Password), "\x00\n\r") {
		err = errors.New("credentials must not have line ends or null bytes")
	}
	if err != nil {
		return g.failed(op, err)
	}
	// An empty helper removes those that are configured, for all hosts or for this
	// one.
	scoped := "credential." + host + ".helper="
	args = append([]string{"-c", "credential.helper=", "-c", scoped, "-c", scoped + credentialHelper}, args...)
	stdin := strings.NewReader(c.Username + "\x00" + string(c.Password) + "\x00")
	_, err = g.runWith(ctx, op, &CommandParams{Stdin: stdin}, credentialShell+gitLine(args), p)
	return err
}

// credentialHost returns the part of a remote's address that credentials are for.
func credentialHost(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("credentials are for remotes over http and https; the address of this one is of another kind")
	}
	return u.Scheme + "://" + u.Host, nil
}
