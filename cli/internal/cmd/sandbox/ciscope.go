package sandbox

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/ci"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// ciScope is a flag value that selects the sandboxes of this CI job or of the whole CI run. ""
// selects all sandboxes, even those that were not made in CI.
type ciScope string

const (
	ciJob ciScope = "job"
	ciRun ciScope = "run"
)

func (s *ciScope) Type() string   { return "job|run" }
func (s *ciScope) String() string { return string(*s) }

func (s *ciScope) Set(value string) error {
	if scope := ciScope(value); scope != ciJob && scope != ciRun {
		return errors.New("want job or run")
	}
	*s = ciScope(value)
	return nil
}

// addCI adds the metadata of --ci to that of --metadata. If both have a key, the value of
// --metadata takes precedence. addCI refuses --ci if the resulting metadata would also select
// sandboxes outside of the job or the run.
func (o *killOptions) addCI(cmd *cobra.Command) error {
	if o.CI == "" {
		return nil
	}
	job, ok := ci.Find(os.Getenv)
	switch {
	case !ok:
		return cmdutil.Usagef(cmd, "--ci: this is no CI job that e2bctl knows, or its run has no ID; -m KEY=VALUE selects by other metadata")
	case o.CI == ciJob && job.Name == "":
		return cmdutil.Usagef(cmd, "--ci: this job has neither name nor ID; --ci=run selects the sandboxes of all jobs of the run")
	case o.CI == ciRun:
		o.Metadata = o.Metadata.Over(job.RunLabels())
	default:
		o.Metadata = o.Metadata.Over(job.Labels())
	}
	return nil
}
