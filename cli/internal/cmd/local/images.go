package local

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// imageFlags are the flags for the source of container images.
type imageFlags struct {
	mirrors  cmdutil.KeyValues
	insecure []string
	dirs     []string
	cache    cmdutil.Size
}

// add adds the flags to cmd.
func (i *imageFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&i.mirrors, "registry-mirror", "fetch images of a registry from a URL in its place,\nsuch as docker.io=https://mirror.example, repeatable")
	flags.StringArrayVar(&i.insecure, "insecure-registry", nil, "fetch images of the registry `HOST` even over plain HTTP or\nwithout a valid certificate, repeatable")
	flags.Var(&i.cache, "image-cache", "the bound of images that are kept for sandboxes of --image\nand for builds (default no bound of its own)")
	flags.StringArrayVar(&i.dirs, "image-dir", nil, "let builds read images from files in `DIR`, repeatable")
}

// absolute makes the paths of directories absolute, so that they are valid in
// another process.
func (i *imageFlags) absolute() (err error) {
	for at := range i.dirs {
		if i.dirs[at], err = filepath.Abs(i.dirs[at]); err != nil {
			return err
		}
	}
	return nil
}

// arguments returns the flags that the user gave, as arguments for another process of e2bctl.
func (i *imageFlags) arguments() []string {
	var all []string
	for _, host := range slices.Sorted(maps.Keys(i.mirrors)) {
		all = append(all, "--registry-mirror", host+"="+i.mirrors[host])
	}
	for _, host := range i.insecure {
		all = append(all, "--insecure-registry", host)
	}
	for _, dir := range i.dirs {
		all = append(all, "--image-dir", dir)
	}
	if i.cache > 0 {
		all = append(all, "--image-cache", i.cache.String())
	}
	return all
}

// options returns the options that start a local cloud with the settings of the flags.
func (i *imageFlags) options() []local.Option {
	var all []local.Option
	for host, url := range i.mirrors {
		all = append(all, local.WithRegistryMirror(host, url))
	}
	for _, host := range i.insecure {
		all = append(all, local.WithInsecureRegistry(host))
	}
	for _, dir := range i.dirs {
		all = append(all, local.WithImageDir(dir))
	}
	if i.cache > 0 {
		all = append(all, local.WithImageCache(int64(i.cache)))
	}
	return all
}
