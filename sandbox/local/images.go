package local

import "maps"

// images contains the settings for container images.
type images struct {
	mirrors  map[string]string
	insecure []string
	dirs     []string
}

// WithRegistryMirror fetches images of a registry, such as docker.io or localhost:5000, from
// another URL: "https://HOST" or "http://HOST". The URL may have a path that precedes the names
// of images. The registry itself then receives no requests for images. The option may be given
// several times.
//
// Builds of templates fetch images. A build uses the login that it specifies. If it specifies no
// login, it uses the login in this user's docker configuration for the registry that receives the
// request.
func WithRegistryMirror(host, url string) Option {
	return func(s *settings) {
		s.images.mirrors = maps.Clone(s.images.mirrors)
		if s.images.mirrors == nil {
			s.images.mirrors = map[string]string{}
		}
		s.images.mirrors[host] = url
	}
}

// WithInsecureRegistry fetches images of a registry even without a valid certificate, or over plain
// HTTP. Plain HTTP is always allowed for a registry at a loopback address of this machine. The
// option may be given several times.
func WithInsecureRegistry(host string) Option {
	return func(s *settings) { s.images.insecure = append(s.images.insecure, host) }
}

// WithImageDir permits builds to read images from files in a directory. The image
// docker-archive:/PATH[:NAME] is an archive of docker save, and oci:/PATH[:TAG] is an image layout
// of the Open Container Initiative. By default no build reads such files, because anyone with the
// API key may build templates and could then read files of this machine. The option may be given
// several times.
func WithImageDir(dir string) Option {
	return func(s *settings) { s.images.dirs = append(s.images.dirs, dir) }
}
