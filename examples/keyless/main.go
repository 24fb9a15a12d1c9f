// Command keyless runs an unmodified program with a key that the program never sees. The service
// adds the key to the program's requests when they leave the sandbox. It does so only for requests
// to one host, which is the only host that the program can reach.
//
//	API_KEY=… keyless -local -host api.github.com curl -sS https://api.github.com/user
//
// Without -local, E2B_API_KEY and the other E2B_ variables name the service to use.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

const usage = `Usage: API_KEY=KEY keyless -host HOST [flags] COMMAND...

COMMAND runs in a sandbox, by a shell, and makes its requests to HOST without a key.

`

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	host := flag.String("host", "", "`name` of the host that the key is for")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *here, *host, strings.Join(flag.Args(), " "))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "keyless:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, here bool, host, command string) (err error) {
	key := sandbox.Key(os.Getenv("API_KEY"))
	if host == "" || key == "" || command == "" {
		return errors.New("it takes -host, the key in API_KEY, and a command; see -h")
	}
	var options []sandbox.ClientOption
	if here {
		cloud, err := local.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return keyless(ctx, options, host, key, command, os.Stdout)
}

// keyless runs a command. The service adds the key to the command's requests to host.
func keyless(ctx context.Context, options []sandbox.ClientOption, host string, key sandbox.Key, command string, out io.Writer) (err error) {
	client, err := sandbox.NewClient(options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	name := "keyless-" + rand.Text() // unique for this run
	secret, err := client.Secrets.Create(ctx, name, &sandbox.SecretParams{Value: string(key)})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Secrets.Delete(ctx, secret.ID))
	}()
	sb, err := client.Create(ctx, sandbox.WithNetwork(sandbox.Network{
		Headers:  map[string]map[string]string{host: {"Authorization": "Bearer " + sandbox.SecretRef(name)}},
		AllowOut: []string{host},
		DenyOut:  []string{sandbox.AllTraffic}, // so that no request leaves for another host
	}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	_, err = sb.Commands.Run(ctx, command, &sandbox.CommandParams{Stdout: out, Stderr: out})
	return err
}
