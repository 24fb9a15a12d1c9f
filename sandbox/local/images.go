package local

import "maps"

// images contains the settings for container images.
type images struct {
	mirrors  map[string]string
	insecure []string
	dirs     []string
	maxBytes int64
}

// WithRegistryMirror fetches images of a registry, such as docker.io or localhost:5000, from
// another URL: "https://HOST" or "http://HOST". The URL may have a path that precedes the names
// of images. The registry itself then receives no requests for images. The option may be given
// several times.
//
// Builds of templates and creations of sandboxes with [sandbox.WithImage] fetch images. They use the
// login in this user's docker configuration for the registry that receives the request, unless a
// build specifies another one.
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

// WithImageCache limits the bytes of the images that the cloud keeps for further builds and for
// sandboxes of [sandbox.WithImage]. Layers that a template needs do not count. When an image is
// fetched for a sandbox, the cloud drops the least recently used ones until the others are within
// the limit. The default, 0, means that only the limit of 20 GiB for layers and cached steps applies.
// Images that an engine keeps itself, such as those of Docker, do not count.
func WithImageCache(bytes int64) Option { return func(s *settings) { s.images.maxBytes = bytes } }

// WithImageDir permits builds, and sandboxes of [sandbox.WithImage], to read images from files in a directory. The image
// docker-archive:/PATH[:NAME] is an archive of docker save, and oci:/PATH[:TAG] is an image layout
// of the Open Container Initiative. By default nothing reads such files, because anyone with the
// API key could then read files of this machine. The option may be given
// several times.
func WithImageDir(dir string) Option {
	return func(s *settings) { s.images.dirs = append(s.images.dirs, dir) }
}
