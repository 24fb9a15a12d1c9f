// Command image writes the container image of e2bctl, for make image.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/internal/packaging"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var image packaging.Image
	flags := pflag.NewFlagSet("image", pflag.ExitOnError)
	flags.StringArrayVar(&image.Servers, "binary", nil, "`FILE` of e2bctl-kubernetes for one architecture, repeatable")
	flags.StringArrayVar(&image.Programs, "program", nil, "`FILE` of the program that serves a sandbox from inside, repeatable")
	flags.StringVar(&image.Certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt", "`FILE` of the certificate authorities")
	flags.StringVar(&image.Name, "name", "e2bctl:dev", "name of the image where it is imported")
	to := flags.StringP("output", "o", "", "write an OCI image layout to the tar archive `FILE`")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if *to == "" || flags.NArg() > 0 {
		return errors.New("want --binary, --program and --output, and no arguments")
	}
	file, err := os.Create(*to)
	if err != nil {
		return err
	}
	if err := errors.Join(image.WriteTar(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(*to))
	}
	return nil
}
