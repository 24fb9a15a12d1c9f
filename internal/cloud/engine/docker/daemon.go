package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/moby/moby/client"
)

// ErrNoDaemon means that no Docker or Podman daemon answers. The text of an error that matches
// ErrNoDaemon lists the addresses that were tried, and the programs to install.
var ErrNoDaemon = errors.New("no Docker or Podman daemon answers")

// endpoint is an address at which a daemon may answer.
type endpoint struct {
	host string
	why  string // the source of the address; "": the address is a usual one
	opts []client.Opt
}

// find connects to a daemon, and returns the client and the daemon's address. If the caller or the
// configuration of the user's docker command names a daemon, find tries only that daemon. Otherwise
// it connects to the first daemon that answers at a usual address.
func find(ctx context.Context, host string) (*client.Client, string, error) {
	endpoints, err := candidates(host)
	if err != nil {
		return nil, "", err
	}
	var tried []error
	for _, e := range endpoints {
		c, err := connect(ctx, e)
		if err == nil {
			return c, e.host, nil
		}
		name := e.host
		if e.why != "" {
			name += " (" + e.why + ")"
		}
		tried = append(tried, fmt.Errorf("%s: %w", name, err))
	}
	return nil, "", noDaemonError(tried)
}

// noDaemonError is an [ErrNoDaemon] whose text, in one line, names the error of each daemon that
// was tried.
type noDaemonError []error

func (e noDaemonError) Error() string {
	var b strings.Builder
	b.WriteString(ErrNoDaemon.Error())
	for _, err := range e {
		fmt.Fprintf(&b, "; %s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if errors.Is(errors.Join(e...), fs.ErrPermission) {
		return b.String() + "; to mend it: let this user reach the socket (usermod -aG docker NAME, and log in again)"
	}
	remedy := "Docker Engine (apt-get install docker.io), Docker Desktop or Podman (systemctl --user start podman.socket)"
	if runtime.GOOS != "linux" {
		remedy = "Docker Desktop or Podman (podman machine start)"
	}
	return b.String() + "; to mend it: install and start " + remedy + ", or name another daemon with DOCKER_HOST"
}

func (e noDaemonError) Is(target error) bool { return target == ErrNoDaemon }
func (e noDaemonError) Unwrap() []error      { return e }

func connect(ctx context.Context, e endpoint) (*client.Client, error) {
	if path, ok := strings.CutPrefix(e.host, "unix://"); ok {
		// The client's own errors report a forbidden socket only in words.
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			return nil, failed.Err // the path is in e.host
		}
		if err != nil {
			return nil, err
		}
		_ = conn.Close()
	}
	if strings.HasPrefix(e.host, "ssh://") {
		return nil, errors.New("daemons are not reached over ssh: forward the socket (ssh -N -L /tmp/docker.sock:/var/run/docker.sock HOST) and set DOCKER_HOST=unix:///tmp/docker.sock")
	}
	c, err := client.New(append([]client.Opt{client.WithHost(e.host)}, e.opts...)...)
	if err != nil {
		return nil, err
	}
	if _, err := c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// candidates lists the endpoints to try.
func candidates(host string) ([]endpoint, error) {
	if host != "" {
		return []endpoint{{host: host, why: "asked for"}}, nil
	}
	if host := os.Getenv(client.EnvOverrideHost); host != "" {
		return []endpoint{{host: host, why: client.EnvOverrideHost, opts: []client.Opt{client.WithTLSClientConfigFromEnv()}}}, nil
	}
	dir := configDir()
	name, why := os.Getenv("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
	if name == "" && dir != "" {
		file := filepath.Join(dir, "config.json")
		name, why = currentContext(file), "the current context of "+file
	}
	if name != "" && name != "default" {
		e, err := contextEndpoint(dir, name)
		if err != nil {
			return nil, fmt.Errorf("%w: the context %q (%s): %w", ErrNoDaemon, name, why, err)
		}
		e.why = fmt.Sprintf("the context %q, %s", name, why)
		return []endpoint{e}, nil
	}
	return usualPlaces(), nil
}

func usualPlaces() (places []endpoint) {
	if runtime.GOOS == "windows" {
		return []endpoint{{host: client.DefaultDockerHost}, {host: "npipe:////./pipe/podman-machine-default"}}
	}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, endpoint{host: "unix://" + filepath.Join(home, ".docker/run/docker.sock")})
	}
	places = append(places, endpoint{host: client.DefaultDockerHost})
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		places = append(places, endpoint{host: "unix://" + dir + "/docker.sock"}, endpoint{host: "unix://" + dir + "/podman/podman.sock"})
	}
	return append(places, endpoint{host: "unix:///run/podman/podman.sock"})
}

// configDir is the configuration directory of the docker command; "" means that there is no home.
func configDir() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".docker")
}

func currentContext(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	var config struct{ CurrentContext string }
	if json.Unmarshal(data, &config) != nil {
		return "" // the docker command complains, and goes on too
	}
	return config.CurrentContext
}

// contextEndpoint reads a context of the docker command.
func contextEndpoint(dir, name string) (endpoint, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	data, err := os.ReadFile(filepath.Join(dir, "contexts", "meta", id, "meta.json"))
	if err != nil {
		return endpoint{}, err
	}
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return endpoint{}, err
	}
	e := endpoint{host: meta.Endpoints["docker"].Host}
	if e.host == "" {
		return endpoint{}, errors.New("it names no daemon")
	}
	tls := filepath.Join(dir, "contexts", "tls", id, "docker")
	if _, err := os.Stat(tls); err == nil {
		e.opts = append(e.opts, client.WithTLSClientConfig(filepath.Join(tls, "ca.pem"), filepath.Join(tls, "cert.pem"), filepath.Join(tls, "key.pem")))
	}
	return e, nil
}

// isLocal reports whether the daemon at host can use this machine's own file system.
func isLocal(host string) bool { return strings.HasPrefix(host, "unix://") }
