package local

import "maps"

// images says where container images come from.
type images struct {
	mirrors  map[string]string
	insecure []string
	dirs     []string
}

// WithRegistryMirror has images of a registry, such as docker.io or localhost:5000, fetched
// from a URL in its place: "https://HOST" or "http://HOST", with a path before the names of
// images if they have one there. The registry itself is not asked for them then. It can be
// used several times.
//
// Images are asked for by builds of templates. The login is that of the build, or else that of
// this user's docker configuration for the registry that is asked.
func WithRegistryMirror(host, url string) Option {
	return func(s *settings) {
		s.images.mirrors = maps.Clone(s.images.mirrors)
		if s.images.mirrors == nil {
			s.images.mirrors = map[string]string{}
		}
		s.images.mirrors[host] = url
	}
}

// WithInsecureRegistry has images of a registry fetched from it even without a valid
// certificate, or over plain HTTP. A registry on this machine's loopback may always speak
// that. It can be used several times.
func WithInsecureRegistry(host string) Option {
	return func(s *settings) { s.images.insecure = append(s.images.insecure, host) }
}

// WithImageDir lets builds read images from files in a directory, as docker-archive:/PATH[:NAME],
// an archive of docker save, and oci:/PATH[:TAG], a layout of the Open Container Initiative.
// Without it no build reads such files: everybody with the API key may build, and could otherwise
// read files of this machine. It can be used several times.
func WithImageDir(dir string) Option {
	return func(s *settings) { s.images.dirs = append(s.images.dirs, dir) }
}
