//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// controlRows are the rows about the control plane.
func (b *bench) controlRows() []row {
	const http = "the same by http"
	return []row{
		{name: "sandboxes created and killed, one at a time", runs: 5, measure: b.turnover(1)},
		{name: "sandboxes created and killed, 20 at once", runs: 5, measure: b.turnover(20)},
		{name: "list of " + count(b.records, "sandboxes"), runs: 5, measure: b.counted(listed)},
		{name: "`Events`: " + count(b.records, "events") + ", one reader", runs: 5, measure: b.counted(eventsRead)},
		{
			name: "`Commands.Run(\"echo\")` by https", runs: 100, measure: b.byHTTPS((*bench).inOne, echo),
			floor: b.inOne(echo), floorName: http,
		},
		{
			name: b.megabytes("uploaded to a file by https"), runs: 3, measure: b.byHTTPS((*bench).transfer, b.uploadFile),
			floor: b.transfer(b.uploadFile), floorName: http,
		},
	}
}

// turnover measures the time to create and kill one sandbox. It creates and kills a crowd of
// sandboxes, atOnce of them at the same time.
func (b *bench) turnover(atOnce int) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		r, err := repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			err := errors.Join(each(atOnce, b.crowd, func(int) error {
				return b.with(ctx, func(*sandbox.Sandbox) error { return nil })
			})...)
			return time.Since(start) / time.Duration(b.crowd), err
		})
		if err == nil {
			r.notes = []string{fmt.Sprintf("%.0f a second", 1/r.median().Seconds())}
		}
		return r, err
	}
}

// counted measures a call that returns a number of records. There must be one for each of many
// sandboxes. The sandboxes have no processes, because one machine cannot run that many.
func (b *bench) counted(read func(context.Context, *api.Client) (int, error)) measurement {
	return func(ctx context.Context, runs int) (result, error) {
		return b.withMany(ctx, func(key, url string) (r result, err error) {
			client, err := api.NewClient(api.WithAPIKey(api.Key(key)), api.WithBaseURL(url))
			if err != nil {
				return result{}, err
			}
			defer func() { err = errors.Join(err, client.Close()) }()
			return repeat(ctx, runs, whole(func(ctx context.Context) error {
				n, err := read(ctx, client)
				if err != nil {
					return err
				}
				return b.allListed(n)
			}))
		})
	}
}

// listed lists all sandboxes, page by page.
func listed(ctx context.Context, client *api.Client) (n int, err error) {
	for _, err := range client.Sandboxes.List(ctx, nil) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// eventsRead reads all events, page by page: each sandbox was created.
func eventsRead(ctx context.Context, client *api.Client) (n int, err error) {
	for _, err := range client.Sandboxes.Events(ctx, nil) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// listedByCommand is like listed, but measures e2bctl ls.
func (b *bench) listedByCommand(ctx context.Context, runs int) (result, error) {
	return b.withMany(ctx, func(key, url string) (result, error) {
		return calls(func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, b.command, "ls", "--no-headers")
			cmd.Env = append(os.Environ(), "E2B_API_KEY="+key, "E2B_API_URL="+url)
			out, err := cmd.Output()
			return errors.Join(err, b.allListed(bytes.Count(out, []byte("\n"))))
		})(ctx, runs)
	})
}

func (b *bench) allListed(n int) error {
	if n != b.records {
		return fmt.Errorf("%d of %d records came", n, b.records)
	}
	return nil
}

// withMany calls measure with a service that has many sandboxes without processes.
func (b *bench) withMany(ctx context.Context, measure func(key, url string) (result, error)) (_ result, err error) {
	fakes, kept := &lifecycletest.Fakes{}, store.Temporary(filepath.Join(os.TempDir(), "e2bctl-bench-unused"))
	registry := lifecycle.New(lifecycle.Options{MaxSandboxes: b.records, Launch: fakes.Launch, Store: kept})
	defer func() { err = errors.Join(err, registry.Close()) }()
	for range b.records {
		if _, err := registry.Create(ctx, lifecycle.Request{Template: lifecycle.Template{ID: "base", Alias: "base"}, Lifetime: time.Hour}); err != nil {
			return result{}, err
		}
	}
	const key = "e2b_0123456789abcdef"
	server := httptest.NewServer(control.New(control.Options{Key: key, Sandboxes: registry, Store: kept}))
	defer server.Close()
	return measure(key, server.URL)
}

// byHTTPS measures with a client that reaches the cloud by its domain, as a client of the hosted
// service does.
func (b *bench) byHTTPS(measure func(*bench, call) measurement, do call) measurement {
	return func(ctx context.Context, runs int) (_ result, err error) {
		transport, err := trusting(b.cloud)
		if err != nil {
			return result{}, err
		}
		defer transport.CloseIdleConnections()
		client, err := sandbox.NewClient(
			sandbox.WithAPIKey(b.cloud.APIKey()), sandbox.WithDomain(b.cloud.Domain()), sandbox.WithTransport(transport))
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		other := *b
		other.client = client
		return measure(&other, do)(ctx, runs)
	}
}

// trusting returns a transport that trusts the cloud's certificates, and that connects
// to the cloud for every name.
func trusting(cloud *local.Cloud) (*http.Transport, error) {
	roots := x509.NewCertPool()
	for _, pair := range cloud.Env() {
		file, found := strings.CutPrefix(pair, "NODE_EXTRA_CA_CERTS=")
		if !found {
			continue
		}
		certificate, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !roots.AppendCertsFromPEM(certificate) {
			return nil, fmt.Errorf("%s has no certificate", file)
		}
	}
	address := strings.TrimPrefix(cloud.URL(), "http://")
	return &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}, nil
}
