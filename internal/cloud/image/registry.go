package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// answerTimeout bounds the time until a registry begins to answer. After that, only the context of
// the call bounds the time.
const answerTimeout = time.Minute

// registries looks up and fetches images in registries.
type registries struct {
	mirrors   map[string]mirror // keyed by the name of the registry
	insecure  []string
	keychain  authn.Keychain
	transport *transports
}

// mirror is a registry that replaces another registry.
type mirror struct {
	registry name.Registry
	prefix   string // prefix of the names of repositories in the mirror
}

func newRegistries(o Options) (*registries, error) {
	r := &registries{mirrors: map[string]mirror{}, keychain: o.Keychain, insecure: slices.Clone(o.Insecure)}
	for host, at := range o.Mirrors {
		asked, err := name.NewRegistry(host)
		if err != nil {
			return nil, fmt.Errorf("image: a mirror of %q: %w", host, err)
		}
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			return nil, fmt.Errorf("image: the mirror of %s is %q, which is not a URL such as https://HOST/PATH or http://HOST without a password", host, at)
		}
		var how []name.Option
		if u.Scheme == "http" {
			how = append(how, name.Insecure)
			r.insecure = append(r.insecure, u.Host)
		}
		registry, err := name.NewRegistry(u.Host, how...)
		if err != nil {
			return nil, fmt.Errorf("image: the mirror of %s: %w", host, err)
		}
		r.mirrors[asked.Name()] = mirror{registry, strings.Trim(u.Path, "/")}
	}
	secure := remote.DefaultTransport.(*http.Transport).Clone()
	secure.ResponseHeaderTimeout = answerTimeout
	secure.MaxIdleConns, secure.MaxIdleConnsPerHost, secure.IdleConnTimeout = 8, 4, 10*time.Second
	lax := secure.Clone()
	lax.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	outside := secure.Clone()
	outside.DialContext = dialOutside
	r.transport = &transports{secure, lax, outside, r.insecure}
	return r, nil
}

// transports sends requests to registries. Only registries in Options.Insecure may lack a valid
// certificate. Only these registries and this machine may use plain HTTP. This also applies to the
// target of a redirect. A registry of the internet cannot redirect to a host of this machine's
// networks.
type transports struct {
	secure, lax, outside *http.Transport
	insecure             []string
}

// RoundTrip sends a request.
func (d *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	named := slices.Contains(d.insecure, r.URL.Host)
	if r.URL.Scheme != "https" && !named && !onThisMachine(r.URL.Hostname()) {
		return nil, fmt.Errorf("%s speaks no HTTPS, and is not one of the registries for which that was allowed", r.URL.Host)
	}
	switch {
	case named:
		return d.lax.RoundTrip(r)
	case redirectedByInternet(r):
		return d.outside.RoundTrip(r)
	}
	return d.secure.RoundTrip(r)
}

func onThisMachine(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

func (d *transports) close() {
	d.secure.CloseIdleConnections()
	d.lax.CloseIdleConnections()
	d.outside.CloseIdleConnections()
}

// place returns the reference from which to fetch an image. If the registry has a mirror, the
// returned reference names the mirror.
func (r *registries) place(reference string) (name.Reference, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	of := ref.Context()
	if m, found := r.mirrors[of.RegistryStr()]; found {
		of = m.registry.Repo(m.prefix, of.RepositoryStr())
	} else if slices.Contains(r.insecure, of.RegistryStr()) {
		registry, err := name.NewRegistry(of.RegistryStr(), name.Insecure)
		if err != nil {
			return nil, err
		}
		of = registry.Repo(of.RepositoryStr())
	}
	if d, is := ref.(name.Digest); is {
		return of.Digest(d.DigestStr()), nil
	}
	return of.Tag(ref.Identifier()), nil
}

// find looks up an image in a registry. If known has the image and the registry confirms that
// the reference still points to it, find does not fetch it again. known may be nil.
func (r *registries) find(ctx context.Context, on v1.Platform, reference string, auth *Auth, known *cache) (*found, error) {
	ref, err := r.place(reference)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{remote.WithTransport(r.transport)}
	if auth != nil {
		options = append(options, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: auth.Username, Password: auth.Password})))
	} else {
		options = append(options, remote.WithAuthFromKeychain(r.keychain))
	}
	p, err := remote.NewPuller(options...)
	if err != nil {
		return nil, err
	}
	from := &registry{p, ref.Context()}
	head, err := p.Head(ctx, ref)
	if err == nil {
		if known != nil {
			if image := known.image(head.Digest.String()); image != nil {
				return image.found(reference, head.Digest.String()), nil
			}
		}
		ref = ref.Context().Digest(head.Digest.String()) // a digest always means the same image
	}
	got, err := p.Get(ctx, ref)
	if err != nil {
		return nil, explain(ref, err)
	}
	f, err := resolve(ctx, on, from, reference, got.Descriptor, got.Manifest)
	return f, explain(ref, err)
}

// found returns a stored image. All layers of the image are stored.
func (k *known) found(name, asked string) *found {
	f := &found{name: name, asked: asked, digest: k.Digest, config: k.Config, close: func() {}}
	for _, b := range k.Blobs {
		f.blobs = append(f.blobs, blob{digest: b.Digest, chain: b.Chain})
	}
	f.open = func(context.Context, int) (io.ReadCloser, error) {
		return nil, errors.New("a layer that was here was removed meanwhile: try again")
	}
	return f
}

// registry fetches from a repository of a registry.
type registry struct {
	puller *remote.Puller
	of     name.Repository
}

func (r *registry) manifest(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	got, err := r.puller.Get(ctx, r.of.Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	return got.Manifest, nil
}

func (r *registry) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	l, err := r.puller.Layer(ctx, r.of.Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	body, err := l.Compressed()
	if err != nil {
		return nil, explain(r.of.Digest(d.Digest.String()), err)
	}
	return newWhole(body, d.Size, d.Digest)
}

// StatusOf returns the HTTP status of the registry's answer that is the reason for an error of
// [Puller]; 0 if there is no such answer.
func StatusOf(err error) int {
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		return refused.StatusCode
	}
	return 0
}

// explain adds a remedy to an error of a registry.
func explain(ref name.Reference, err error) error {
	registry := ref.Context().RegistryStr()
	var refused *transport.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden):
		return fmt.Errorf("the registry %s does not let this user have it, or has no such image: log in with docker login %s, or give credentials: %w", registry, registry, err)
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the registry %s does not have it: %w", registry, err)
	}
	if unreached := new(net.OpError); errors.As(err, &unreached) {
		return fmt.Errorf("the registry %s cannot be reached; e2bctl local up --registry-mirror names another place for its images: %w", registry, err)
	}
	return err
}
