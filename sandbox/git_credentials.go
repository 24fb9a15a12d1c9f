package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// GitCredentials authorize calls to a remote over http or https. A call uses the credentials in
// its params once and does not store them.
//
// The credentials enter the sandbox through the standard input of a shell. The shell passes them to
// git through a pipe that can be read only once. git requests them only for the remote's host. The
// credentials appear on no command line, in no environment and in no file, and git's own credential
// helpers are disabled. During the call, code that runs in the sandbox as the same user could still
// read them: use a short-lived token that is valid only for this repository.
type GitCredentials struct {
	// Username is the name of the account. Many services accept any name if Password is a token.
	Username string
	// Password is the password or token; its type keeps it out of logs.
	Password Key
}

// Format writes the fields, and "[redacted]" for a key that is set. Without this method, fmt would
// print the keys if a struct with a pointer to credentials is formatted with an unsuitable verb such as %s.
func (c GitCredentials) Format(f fmt.State, verb rune) {
	type fields GitCredentials
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), fields(c))
}

// GitAuthenticateParams sets where to store credentials.
type GitAuthenticateParams struct {
	GitParams
	// Address is the http or https address of the service or of one of its repositories. The
	// credentials apply to all repositories with this scheme and host. Empty means
	// "https://github.com".
	Address string
}

// DangerouslyAuthenticate stores credentials in the sandbox for all later calls and commands of
// git. It stores them as plain text in the file .git-credentials of the user's home. git uses
// them until the sandbox ends or the file is removed. All code that runs in the sandbox can read the
// file and send it elsewhere, so prefer the Credentials of a call. DangerouslyAuthenticate also
// adds the credential.helper "store" to the user's git configuration. It passes the credentials
// neither on a command line nor in an environment variable.
func (g *Git) DangerouslyAuthenticate(ctx context.Context, c GitCredentials, p *GitAuthenticateParams) error {
	const op = "authenticate"
	p = orZero(p)
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

// storeCredentials is a command line. It adds the credential helper "store" to the configuration if
// that helper is missing, and passes its standard input to the helper. Other helpers do not receive
// the credentials. Unlike "git credential approve", the command line fails if nothing was stored.
const storeCredentials = `{ git config --global --get-all credential.helper | grep -qx store || git config --global --add credential.helper store; } </dev/null && ` +
	`exec git credential-store store`

// credentialShell is the beginning of a command line. It copies the credentials from its standard
// input to a pipe on file descriptor 9, from which the rest of the command line can read them. The
// credentials are in no argument and no environment of a process, because printf is a builtin of
// the shell and the shell exports no variables.
const credentialShell = `set +ax; IFS= read -r -d '' e2b_u; IFS= read -r -d '' e2b_p; ` +
	`exec 9< <(printf 'username=%s\npassword=%s\n' "$e2b_u" "$e2b_p") </dev/null; unset e2b_u e2b_p; exec `

// credentialHelper is a credential helper for git. It answers a request for credentials, and
// ignores all other requests, such as those to store credentials.
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
	// An empty helper disables the configured helpers, those for all hosts and those for this
	// host.
	scoped := "credential." + host + ".helper="
	args = append([]string{"-c", "credential.helper=", "-c", scoped, "-c", scoped + credentialHelper}, args...)
	stdin := strings.NewReader(c.Username + "\x00" + string(c.Password) + "\x00")
	_, err = g.runWith(ctx, op, &CommandParams{Stdin: stdin}, credentialShell+gitLine(args), p)
	return err
}

// check returns an error if git's credential protocol cannot represent the credentials.
func (c GitCredentials) check() error {
	if strings.ContainsAny(c.Username+string(c.Password), "\x00\n\r") {
		return errors.New("credentials must not have line ends or null bytes")
	}
	return nil
}

// credentialHost returns the scheme and the host of a remote's address. Credentials apply to this
// scheme and host.
func credentialHost(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("credentials are for remotes over http and https; the address of this one is of another kind")
	}
	return u.Scheme + "://" + u.Host, nil
}
