package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

const environmentHelp = `Settings come from these places; the first one that has a value wins:

  1. flags (--api-url, --domain)
  2. the environment
  3. the file named by --env-file, or else ./.env (E2B_* only); no file with
     --no-env-file
  4. defaults

  E2B_API_KEY       the key of the service
  E2B_DOMAIN        the service's domain (default e2b.app)
  E2B_API_URL       its API, when it is not https://api.<domain>
  E2B_SANDBOX_URL   one address for all sandboxes, when there is one
  E2B_VOLUME_API_URL
                    the address of what is in volumes, when it is not the API's
  E2BCTL_LOCAL      1 turns --local on for every command that has it
  E2BCTL_ANNOTATE   1 turns --annotate on
  E2BCTL_PYTHON     the python3 of local sandboxes
  E2BCTL_SECRETS_KEY  what the local cloud seals secrets with
  XDG_RUNTIME_DIR   where the address and key of a running local cloud are kept;
                    else your cache directory, else one of yours in TMPDIR
  XDG_STATE_HOME    where a local cloud keeps its certificates, its key and paused
                    sandboxes; else ~/.local/state
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY   as in other programs
  OTEL_EXPORTER_OTLP_ENDPOINT
                    a collector for OpenTelemetry's spans of the command, such as
                    http://localhost:4318: OTLP as JSON over HTTP. Others that count:
                    OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES,
                    OTEL_TRACES_SAMPLER, OTEL_SDK_DISABLED, TRACEPARENT

An address from ./.env together with a key from the environment is refused: a
checked-out file must not send your key elsewhere. Put both in one place.
Sandboxes get none of these variables unless you pass them with -e; commands that
are traced get TRACEPARENT.

Every user of the machine can see the arguments of a command, in ps, and your shell
may keep them: that is also where a secret in -e KEY=VALUE or --header is. What a
program in a sandbox needs of a secret can be given without it: as a secret
(e2bctl secret create), with --upload of a file, or on its stdin.
`

const outputHelp = `stdout carries the result and nothing else: an ID, a table, the output of the
remote command. Progress, hints and errors go to stderr. -q prints IDs only and
no progress. -o says how results are written:

  table   the default, for people
  wide    the table with more columns in ls and template ls, and with all columns and
          whole names of files; the same elsewhere
  json    one document with the API's camelCase names
  jsonl   JSON without line breaks inside, each element of a list on its own line
  name    the IDs of what the result is about; commands without any refuse it

--jq EXPR prints what a jq expression makes of the JSON: strings as they are, all
else as JSON. With -o jsonl it sees one line after the other. --no-headers leaves
out the header of tables, and puts each row on one line. With -o json, -o jsonl and
--jq an error is one JSON object on stderr:

  {"error":{"code":"not_found","message":"…","status":404,"requestID":"…"}}

Commands that act on what they name (kill, pause, rm, …) print a list with an entry
for each; one for which they failed has such an error in it.

On a terminal tables show relative times; elsewhere times are RFC 3339 in UTC.
Text from a service or a sandbox is stripped of control characters in tables and
errors. exec and run pass bytes through, as ssh does. So does code run to a file
or a pipe; on a terminal it leaves out escape sequences and other control
characters.
`

const ciHelp = `In a job of GitHub Actions, GitLab, Buildkite, CircleCI, Azure Pipelines, Bitbucket
or Jenkins, each sandbox that create, run, code run, code repl, connect --new and mcp
make has metadata about the job:

  ci             the ID of the run, with its attempt on GitHub
  ci_system      github, gitlab, buildkite, circleci, azure, bitbucket, jenkins
  ci_repository  the repository, or pipeline of Buildkite; not on Jenkins
  ci_job         the job, with what tells its parallel and repeated instances apart

--metadata with the same key takes precedence, and --no-ci-metadata leaves all of it
out. A value has 128 bytes at most and no control characters; what was changed ends
with a hash of the original. A copy that fork makes has the metadata of its original,
because services let nobody choose it. A last step, which also runs when others failed or were
cancelled, kills what is left without knowing any of this:

  e2bctl kill --all --ci --yes       what this job has created
  e2bctl kill --all --ci=run --yes   what all jobs of this run have

--ci is an error outside of such a job, and never means all sandboxes. On GitHub the
instances of a matrix are told apart by the names of their runners; give those that
you host yourself different names.

The same commands write the ID of the sandbox for later steps, as soon as it exists:

  --name-file FILE      to a file, which an ID is written to whole or not at all; an
                        earlier file is removed first
  --github-output NAME  to the output NAME of the step, in the file that GITHUB_OUTPUT
                        names

No sandbox is created if the file cannot be opened. If the ID cannot be written, the
sandbox is killed.

--annotate, in GitHub Actions alone, writes commands for the runner to stderr: it shows
an error above the log, too, folds the log of template build, and masks keys and
access tokens before they are sent or printed. Masks are not written if stderr is a
file. With and without --annotate, messages of e2bctl contain no commands there: what
would be one, such as a file name from a sandbox, gets a backslash. What a program in
a sandbox prints is passed through, so let the runner obey nothing meanwhile:

  stop=$(openssl rand -hex 16)
  { echo "::stop-commands::$stop"; e2bctl exec "$ID" -- make test || status=$?
    echo; echo "::$stop::"; } 2>&1
`

// newCmdHelpTopic returns a command without a run function: cobra lists it
// under additional help topics and prints its text for `e2bctl help <name>`.
func newCmdHelpTopic(name, short, text string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: text}
}

// refuseUnknownTopics makes the command help fail for an unknown topic. cobra's command would print
// the root's help and succeed, but scripts and people must notice the mistake.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" {
			continue
		}
		show := cmd.Run
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
				return cmdutil.Usagef(root, "unknown help topic %q", strings.Join(args, " "))
			}
			show(cmd, args)
			return nil
		}
	}
}
