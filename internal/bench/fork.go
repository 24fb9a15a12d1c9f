//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// chain is the number of layers of a template in the rows, and also the number of steps of a build.
const chain = 20

// forkRows are the rows about forks and templates of sandboxes.
func (b *bench) forkRows() []row {
	files := b.bulk * 100 >> 8
	of := fmt.Sprintf("%d MiB of written files", files>>20)
	many := b.prints / 100
	forks := max(1, b.crowd/5)
	return []row{
		{
			name: "forked, one file with " + of, runs: 5, measure: b.forked(1, 1, files),
			floor: copied(1, files), floorName: "`cp -a` and a sync on the host",
		},
		{
			name: "forked, the same in " + count(many, "files"), runs: 3, measure: b.forked(1, many, files),
			floor: copied(many, files), floorName: "`cp -a` and a sync on the host",
		},
		{name: count(forks, "forks in one call, one file with ") + of, runs: 3, measure: b.forked(forks, 1, files)},
		{
			name: "first sandbox of a template with " + count(chain, "layers, to its first command"), runs: 10, measure: b.layered,
			floor: b.created(0, runTrue), floorName: "of the built-in one",
		},
		{
			name: "template built, " + count(chain, "steps that are cached"), runs: 3, measure: b.built(false),
			floor: b.built(true), floorName: "all steps done",
		},
	}
}

// forked measures n forks of a sandbox with written files. The time ends with the first command in
// the fork, or in the last fork if there are several.
func (b *bench) forked(n, files int, size int64) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = keeping(ctx, func(client *sandbox.Client) error {
			other := *b
			other.client = client
			return other.with(ctx, func(sb *sandbox.Sandbox) error {
				if _, err := sb.Commands.Run(ctx, write(files, size), nil); err != nil {
					return err
				}
				r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
					start := time.Now()
					forks, err := sb.Fork(ctx, &sandbox.ForkParams{Count: n})
					if err != nil {
						return 0, err
					}
					ran := each(len(forks), len(forks), func(i int) error {
						if forks[i].Err != nil {
							return forks[i].Err
						}
						return runTrue(ctx, forks[i].Sandbox)
					})
					took := time.Since(start)
					return took, errors.Join(append(ran, each(len(forks), len(forks), func(i int) error { return forks[i].Sandbox.Close() })...)...)
				})
				return err
			})
		})
		return r, err
	}
}

// built measures the build of a template. The steps did not change since the last build. If anew is
// true, the build runs them again and does not use the cache.
func (b *bench) built(anew bool) measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		definition := template.FromBase()
		for n := range chain {
			definition = definition.Run(fmt.Sprintf("seq 1000 > /home/user/%d", n), nil)
		}
		err = keeping(ctx, func(client *sandbox.Client) error {
			r, err = repeat(ctx, runs, whole(func(ctx context.Context) error {
				_, err := template.Build(ctx, client.Templates, "built", definition, &template.BuildParams{NoCache: anew})
				return err
			}))
			return err
		})
		return r, err
	}
}

// layered measures the first sandbox of the last template in a chain of templates. Each template in
// the chain was made from the one before it.
func (b *bench) layered(ctx context.Context, runs int) (r result, err error) {
	err = keeping(ctx, func(client *sandbox.Client) error {
		at := func(n int) string { return fmt.Sprintf("layer%d", n) }
		for n := range chain {
			var from []sandbox.CreateOption
			if n > 0 {
				from = append(from, sandbox.WithTemplate(at(n-1)))
			}
			sb, err := client.Create(ctx, from...)
			if err != nil {
				return err
			}
			_, err = sb.Commands.Run(ctx, fmt.Sprintf("mkdir -p layers; seq 1000 > layers/%d", n), nil)
			if err == nil {
				_, err = sb.Snapshot(ctx, &sandbox.SnapshotParams{Name: at(n)})
			}
			if err = errors.Join(err, sb.Close()); err != nil {
				return err
			}
		}
		r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			sb, err := client.Create(ctx, sandbox.WithTemplate(at(chain-1)))
			if err != nil {
				return 0, err
			}
			err = runTrue(ctx, sb)
			took := time.Since(start)
			return took, errors.Join(err, sb.Close())
		})
		return err
	})
	return r, err
}
