// Package ci finds the CI job that a command runs in. It also formats outputs of a step of GitHub
// Actions, and commands for the runner of GitHub Actions, which reads them in the log.
package ci

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"
	"unicode"
)

// Job is a job of a CI system. A field is "" if no environment variable of the system contains it.
type Job struct {
	System     string
	Run        string // the ID of the run, which all jobs of this attempt share
	Repository string
	Name       string // the name of the job, with an ID that distinguishes jobs of this name in one run
}

// Find returns the job that this process runs in, from the variables that CI systems set.
// It returns false outside of a job, in an unknown system, and if the run has no ID.
func Find(getenv func(name string) string) (Job, bool) {
	// of joins the variables that are set.
	of := func(separator string, names ...string) string {
		var values []string
		for _, name := range names {
			if value := getenv(name); value != "" {
				values = append(values, value)
			}
		}
		return strings.Join(values, separator)
	}
	var job Job
	switch {
	case InActions(getenv):
		// The instances of a matrix have one GITHUB_JOB.
		job = Job{"github", of("-", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"), of("", "GITHUB_REPOSITORY"), of(" ", "GITHUB_JOB", "RUNNER_NAME")}
	case getenv("GITLAB_CI") == "true":
		job = Job{"gitlab", of("", "CI_PIPELINE_ID"), of("", "CI_PROJECT_PATH"), of(" ", "CI_JOB_NAME", "CI_JOB_ID")}
	case getenv("BUILDKITE") == "true":
		job = Job{"buildkite", of("", "BUILDKITE_BUILD_ID"), of("/", "BUILDKITE_ORGANIZATION_SLUG", "BUILDKITE_PIPELINE_SLUG"), of(" ", "BUILDKITE_LABEL", "BUILDKITE_JOB_ID")}
	case getenv("CIRCLECI") == "true":
		job = Job{"circleci", of("", "CIRCLE_WORKFLOW_ID"), of("/", "CIRCLE_PROJECT_USERNAME", "CIRCLE_PROJECT_REPONAME"), of(" ", "CIRCLE_JOB", "CIRCLE_BUILD_NUM", "CIRCLE_NODE_INDEX")}
	case getenv("TF_BUILD") == "True":
		job = Job{"azure", of("", "BUILD_BUILDID"), of("", "BUILD_REPOSITORY_NAME"), of(" ", "SYSTEM_JOBDISPLAYNAME", "SYSTEM_JOBID")}
	case getenv("BITBUCKET_BUILD_NUMBER") != "":
		job = Job{"bitbucket", of("", "BITBUCKET_BUILD_NUMBER"), of("", "BITBUCKET_REPO_FULL_NAME"), of("", "BITBUCKET_STEP_UUID")}
	case getenv("JENKINS_URL") != "":
		// A stage has no ID of its own, and GIT_URL may contain a password.
		job = Job{"jenkins", of("", "BUILD_TAG"), "", of("", "JOB_NAME")}
	}
	return job, job.Run != ""
}

// Keys of the metadata of a sandbox.
const (
	keyRun        = "ci"
	keySystem     = "ci_system"
	keyRepository = "ci_repository"
	keyJob        = "ci_job"
)

// RunLabels returns the metadata that the sandboxes of all jobs of the run share.
func (j Job) RunLabels() map[string]string {
	return labels(map[string]string{keyRun: j.Run, keySystem: j.System, keyRepository: j.Repository})
}

// Labels returns the metadata of the sandboxes of this job alone.
func (j Job) Labels() map[string]string {
	all := j.RunLabels()
	maps.Copy(all, labels(map[string]string{keyJob: j.Name}))
	return all
}

func labels(values map[string]string) map[string]string {
	fitting := map[string]string{}
	for key, value := range values {
		if value != "" {
			fitting[key] = fit(value)
		}
	}
	return fitting
}

// maxLabel bounds a value, in bytes: services refuse large metadata.
const maxLabel = 128

// fit returns value without control characters, in at most maxLabel bytes. A changed
// value ends with a hash of the original, so that different values stay different.
func fit(value string) string {
	kept := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, value)
	if kept == value && len(value) <= maxLabel {
		return value
	}
	hash := fmt.Sprintf("-%x", sha256.Sum256([]byte(value)))[:17]
	kept = kept[:min(len(kept), maxLabel-len(hash))]
	return strings.ToValidUTF8(kept, "") + hash
}
