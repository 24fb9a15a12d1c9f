// Package template builds templates, which sandboxes are made from: it says in Go what
// is to be in them, as the builders of E2B's SDKs do in JavaScript and Python, or takes a
// Dockerfile.
//
//	web := template.FromBase().
//		Copy("site", "/srv/site", nil).
//		Env(map[string]string{"PORT": "8000"}).
//		Start("cd /srv/site && python3 -m http.server $PORT", template.WaitPort(8000))
//	built, err := template.Build(ctx, client.Templates, "web:v1", web, nil)
//	if err != nil {
//		return err // a *BuildError says which step failed, and what it printed
//	}
//	sb, err := client.Create(ctx, sandbox.WithTemplate(built.Name))
//
// A [Definition] is a value: each method returns a new one, so several templates can go
// on from one, and it may be used by several goroutines. What is wrong with a step is
// reported by [Build], not where the step is added.
//
// The service does each step in a sandbox, and keeps what it makes: a step whose
// beginning, text and files are those of an earlier build is not done again, whichever of
// the SDKs asked for it. What is copied is uploaded once, too.
//
// On a local cloud the images e2bdev/base and e2bdev/code-interpreter are what its
// sandboxes are by default, whatever their tag; other images come from their registries.
//
// [FromDockerfile] also takes several stages, with COPY --from of a stage or of an image. E2B's
// services know no stages. A stage that begins with another one is sent as the steps of
// both, which any service can do. What COPY --from needs is sent beside the steps as stages
// of their own, to a local cloud only: others are asked for nothing, and the error is
// [errors.ErrUnsupported].
package template
