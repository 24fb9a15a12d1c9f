// Command image writes the container image of e2bctl, for make image.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/internal/packaging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var image packaging.Image
	flags := pflag.NewFlagSet("image", pflag.ExitOnError)
	flags.StringArrayVar(&image.Servers, "binary", nil, "`FILE` of e2bctl-kubernetes for one architecture, repeatable")
	flags.StringArrayVar(&image.Programs, "program", nil, "`FILE` of the program that serves a sandbox from inside, repeatable")
	flags.StringVar(&image.Certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt", "`FILE` of the certificate authorities")
	flags.StringVar(&image.Name, "name", "e2bctl:dev", "`REFERENCE` of the image")
	to := flags.StringP("output", "o", "", "write an OCI image layout to the tar archive `FILE`")
	push := flags.Bool("push", false, "push the image to the registry of its name")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 || *to == "" && !*push {
		return errors.New("want --output or --push, and no arguments")
	}
	if *to != "" {
		if err := write(image, *to); err != nil {
			return err
		}
	}
	if *push {
		return image.Push(ctx)
	}
	return nil
}

// write writes the image to a file. If writing fails, no file is left.
func write(image packaging.Image, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(image.WriteTar(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
