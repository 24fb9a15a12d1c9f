// Package template builds templates. Sandboxes are created from templates. A template is defined in
// Go, as with the builders of E2B's SDKs for JavaScript and Python, or by a Dockerfile.
//
//	web := template.FromBase().
//		Copy("site", "/srv/site", nil).
//		Env(map[string]string{"PORT": "8000"}).
//		Start("cd /srv/site && python3 -m http.server $PORT", template.WaitPort(8000))
//	built, err := template.Build(ctx, client.Templates, "web:v1", web, nil)
//	if err != nil {
//		return err // a *BuildError has the failed step and its output
//	}
//	sb, err := client.Create(ctx, sandbox.WithTemplate(built.Name))
//
// A [Definition] is a value: each method returns a new Definition. Several templates can share
// their first steps, and several goroutines may use one Definition. [Build] reports mistakes in a
// step; the method that adds the step does not.
//
// The service runs each step in a sandbox and caches the result. It does not repeat a step if an
// earlier build, from any SDK, had the same step with the same files after the same previous steps.
// Copied files are also uploaded only once.
//
// On a local cloud, the images e2bdev/base and e2bdev/code-interpreter, with any tag, mean the
// cloud's default sandboxes. Other images come from their registries.
//
// [FromDockerfile] supports several stages, and COPY --from of a stage or an image. E2B's services
// have no stages. If a stage begins with another stage, Build sends the steps of both stages; any
// service supports this. Only a local cloud supports COPY --from. With another service the error is
// [errors.ErrUnsupported], and nothing is sent.
package template
