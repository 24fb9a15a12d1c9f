// Package template builds templates, which sandboxes are made from. A template is defined in
// Go, as with the builders of E2B's SDKs for JavaScript and Python, or by a Dockerfile.
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
// A [Definition] is a value: each method returns a new one. Several templates can share a
// beginning, and several goroutines may use it. [Build] reports mistakes in a step; the method
// that adds the step does not.
//
// The service does each step in a sandbox and caches the result. It does not repeat a step
// with the same beginning, text and files as in an earlier build, whichever SDK asked for
// that. Copied files are uploaded once, too.
//
// On a local cloud, the images e2bdev/base and e2bdev/code-interpreter stand for its default
// sandboxes, whatever their tag. Other images come from their registries.
//
// [FromDockerfile] also takes several stages, with COPY --from of a stage or of an image. E2B's
// services know no stages. A stage that begins with another one is sent as the steps of
// both, which any service can do. Only a local cloud takes the stages and images of COPY
// --from. For another service the error is [errors.ErrUnsupported], and nothing is sent.
package template
