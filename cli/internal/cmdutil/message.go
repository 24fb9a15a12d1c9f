package cmdutil

import "strings"

// Message returns the text of err for users of the command, in printable form. Errors of the SDK
// name Go functions and the package that failed. Message replaces the functions by the flags that
// users know, and leaves out the package.
func Message(err error) string { return Words(err.Error()) }

// Words does the same as Message for a text that is not an error, such as a warning.
func Words(text string) string {
	words := strings.NewReplacer(
		": api: ", ": ",
		": sandbox: ", ": ",
		": context deadline exceeded (Client.Timeout exceeded while awaiting headers)", ": it took too long",
		"context deadline exceeded", "it took too long",
		"context canceled", "it was stopped",
		"ask for more with WithExpiry or SetLifetime", "create it with a longer --lifetime",
		", which Contexts.Restart ends", "",
		": nothing listens there; a local cloud that did has ended: start another and use its variables, or unset E2B_API_URL", "", // the hint says so in commands
		", so give the call more time", ": give --timeout more",
		", local.WithMaxSandboxes in Go", "",
		", or DiskBytes of local.Resources", "",
		" (local.WithAllowedMounts)", "",
		" (local.WithWritableMounts)", "",
		" (local.WithMount)", "",
		", local.WithAsk)", ")", ", local.WithHostService)", ")",
		" (local.SetupDocker in a program)", "",
		"local.WithProxyNames", "e2bctl local up --proxy-names",
		"local.WithIsolation(local.Restricted)", "--isolation restricted",
		", local.Start in Go", "",
		", name one that does, e2bctl itself, with local.WithBinary(path)", ": install e2bctl again",
		"name the right binary with local.WithBinary(path)", "end the local cloud and start it again with this e2bctl",
		"name the right one with local.WithBinary(path)", "end the local cloud and start it again with this e2bctl",
		"; or name a static e2bctl for Linux, of this version, with local.WithBinary(path)", "",
		" (SetupDockerParams.From in a program)", "",
		"Definition.Ready, or --ready-cmd", "--ready-cmd",
		" or BuildParams.Ignore", "",
		"BuildParams.Dir", "the directory (--path)",
		"it has a terminal: use PTY.Connect", "it has a terminal: e2bctl connect --pid shows it",
		"it has no terminal: use Commands.Connect", "it has no terminal, so nothing can be typed there",
		"; Resume or Connect wakes it up", "", // the hint below it names the command
		"with WithReboot or ResumeParams.Reboot", "with e2bctl resume --reboot",
		`mode="filesystem" (memory false)`, "--mode filesystem",
		"WithEnvFile", "--env-file",
		"RunCodeParams.Envs", "--env",
		"CommandConnectParams.From", "--from",
		"RunCodeParams.Stdin", "input",
		"sandbox: WithMount(", "--mount (",
		"sandbox: WithVolume(", "--volume (",
		"sandbox: WithExpiry: ", "",
		"ends by ThenPause can", "has --on-timeout pause can",
		"Egress.Rules: only a local cloud checks", "--allow-request: only a local cloud checks",
		"CreateParams.Mounts", "--mount", "CreateParams.Image", "--image", "build a template from it, with template.FromImage", "build a template from it: e2bctl template build and a Dockerfile FROM it", "CreateParams.IdleTimeout", "--idle",
		"CreateParams.Resources: only a local cloud gives each sandbox its own; elsewhere build a template with them", "--cpus, --memory, --disk: only a local cloud gives each sandbox its own; elsewhere build a template with them",
		"Sandboxes.Resize: only a local cloud", "only a local cloud",
		", local.WithMaxCPUs in Go", "", ", local.WithMaxMemoryBytes in Go", "",
		"resources.cpuCount", "--cpus", "resources.memoryBytes", "--memory", "resources.diskBytes", "--disk",
		"TemplateCreateParams.Engine", "--engine",
		"ForkParams.Count is", "the number of copies is",
		"ForkParams.Expiry: ", "",
		"RunCodeParams has both Context and Language,", "the code has both --context and --language,",
		"; wait, or end it with Contexts.Restart", "; wait, or run the code in another sandbox",
		"WasmParams.PyodideDist, --pyodide-dist", "--pyodide-dist",
		"WithInternet, WithNetwork", "--no-internet, --allow-out",
		"network.allowOut", "--allow-out",
		"network.denyOut", "--deny-out",
		"needs denyOut to have", "needs --deny-out to have",
	)
	lines := strings.Split(words.Replace(text), "\n")
	for i, line := range lines { // each error of joined ones has a line
		for _, name := range []string{"api: ", "sandbox: ", "local: ", "cloud: ", "template: "} {
			line = strings.TrimPrefix(line, name)
		}
		lines[i] = line
	}
	return Printable(strings.Join(lines, "\n"))
}
