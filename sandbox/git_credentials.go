package sandbox

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"
)

// GitCredentials authorize calls to a remote over http or https. A call that has
// them in its params uses them once and stores them nowhere: they enter the sandbox on the input of one shell, which hands
// them to git through a pipe that can be read once, and git asks for them only
// for the remote's host. They are on no command line, in no environment and in no
// file, and git's own credential helpers are off. Code of the same user that runs
// in the sandbox at that time could still read them: use a token that is
// short-lived and valid only for this repository.
type GitCredentials struct {
	// Username is the account; many services accept any name with a token.
	Username string
	// Password is the password or token; its type keeps it out of logs.
	Password Key
}

// GitAuthenticateParams sets where to store credentials.
type GitAuthenticateParams struct {
	GitParams
	// Address is the address of the service or of one of its repositories, over http or https: the
	// credentials are for all repositories of this scheme and host. Empty means
	// "https://github.com".
	Address string
}

// DangerouslyAuthenticate stores credentials in the sandbox for every later call
// and command of git, until the sandbox ends or the file is removed. They are in
// plain text in .git-credentials of the user's home, where all code that runs in
// the sandbox can read and send them elsewhere: prefer the Credentials of a call.
// Git's configuration of the user then has the credential.helper "store". On the
// way there, the credentials are on no command line and in no environment.
func (g *Git) DangerouslyAuthenticate(ctx context.Context, c GitCredentials, p *GitAuthenticateParams) error {
	const op = "authenticate"
	p = given(p)
	host, err := credentialHost(cmp.Or(p.Address, "https://github.com"))
	if err == nil {
		err = c.check()
	}
	if err == nil && (c.Username == "" || c.Password == "") {
		err = errors.New("credentials to store need a Username and a Password")
	}
	if err != nil {
		return g.failed(op, err)
	}
	scheme, host, _ := strings.Cut(host, "://")
	stdin := strings.NewReader("protocol=" + scheme + "\nhost=" + host + "\nusername=" + c.Username + "\npassword=" + string(c.Password) + "\n\n")
	_, err = g.runWith(ctx, op, &CommandParams{Stdin: stdin}, storeCredentials, &p.GitParams)
	return err
}

// storeCredentials adds the helper that stores credentials, unless it is there, and
// hands it what is on the input. Other helpers do not see it, and unlike "git
// credential approve" this fails if nothing was stored.
const storeCredentials = `{ git config --global --get-all credential.helper | grep -qx store || git config --global --add credential.helper store; } </dev/null && ` +
	`exec git credential-store store`

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
	if err == nil {
		err = c.check()
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

// check refuses what git's form of credentials cannot carry.
func (c GitCredentials) check() error {
	if strings.ContainsAny(c.Username+string(c.Password), "\x00\n\r") {
		return errors.New("credentials must not have line ends or null bytes")
	}
	return nil
}

// credentialHost returns the part of a remote's address that credentials are for.
func credentialHost(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("credentials are for remotes over http and https; the address of this one is of another kind")
	}
	return u.Scheme + "://" + u.Host, nil
}
