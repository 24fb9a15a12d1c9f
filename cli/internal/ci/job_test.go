package ci

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// environment returns a getenv for lines of NAME=VALUE.
func environment(lines string) func(string) string {
	return func(name string) string {
		for line := range strings.SplitSeq(lines, "\n") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, env string
		want      Job
		isUnknown bool
	}{
		{"github", `CI=true
			GITHUB_ACTIONS=true
			GITHUB_RUN_ID=1658821493
			GITHUB_RUN_ATTEMPT=2
			GITHUB_REPOSITORY=octo/hello
			GITHUB_JOB=test
			RUNNER_NAME=GitHub Actions 12`, Job{"github", "1658821493-2", "octo/hello", "test GitHub Actions 12"}, false},
		{"gitlab", `CI=true
			GITLAB_CI=true
			CI_PIPELINE_ID=40
			CI_PROJECT_PATH=group/sub/project
			CI_JOB_NAME=test 1/3
			CI_JOB_ID=97`, Job{"gitlab", "40", "group/sub/project", "test 1/3 97"}, false},
		{"buildkite", `BUILDKITE=true
			BUILDKITE_BUILD_ID=0190
			BUILDKITE_ORGANIZATION_SLUG=acme
			BUILDKITE_PIPELINE_SLUG=web
			BUILDKITE_JOB_ID=0191`, Job{"buildkite", "0190", "acme/web", "0191"}, false},
		{"circleci, a project of a GitHub App", `CIRCLECI=true
			CIRCLE_WORKFLOW_ID=w
			CIRCLE_PROJECT_REPONAME=web
			CIRCLE_JOB=test
			CIRCLE_BUILD_NUM=7
			CIRCLE_NODE_INDEX=1`, Job{"circleci", "w", "web", "test 7 1"}, false},
		{"azure", `TF_BUILD=True
			BUILD_BUILDID=5
			BUILD_REPOSITORY_NAME=web
			SYSTEM_JOBDISPLAYNAME=Tests
			SYSTEM_JOBID=12f1`, Job{"azure", "5", "web", "Tests 12f1"}, false},
		{"bitbucket", `BITBUCKET_BUILD_NUMBER=3
			BITBUCKET_REPO_FULL_NAME=acme/web
			BITBUCKET_STEP_UUID={1}`, Job{"bitbucket", "3", "acme/web", "{1}"}, false},
		{"jenkins", `JENKINS_URL=https://ci.test/
			BUILD_TAG=jenkins-web-9
			GIT_URL=https://user:secret@git.test/web
			JOB_NAME=web`, Job{"jenkins", "jenkins-web-9", "", "web"}, false},
		{"a system that is not known", "CI=true", Job{}, true},
		{"no CI", "GITHUB_RUN_ID=1", Job{}, true},
		{"a run without an ID", "GITHUB_ACTIONS=true\nGITHUB_REPOSITORY=octo/hello", Job{System: "github", Repository: "octo/hello"}, true},
	} {
		got, ok := Find(environment(c.env))
		if diff := cmp.Diff(c.want, got); diff != "" || ok == c.isUnknown {
			t.Errorf("%s: found %v (-want +got):\n%s", c.name, ok, diff)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	job := Job{System: "github", Run: "1-1", Repository: "a/b", Name: "test"}
	if diff := cmp.Diff(map[string]string{"ci": "1-1", "ci_system": "github", "ci_repository": "a/b"}, job.RunLabels()); diff != "" {
		t.Errorf("of the run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"ci": "1-1", "ci_system": "github", "ci_repository": "a/b", "ci_job": "test"}, job.Labels()); diff != "" {
		t.Errorf("of the job (-want +got):\n%s", diff)
	}
}

// TestStrangeValuesStayDifferent checks that two runs get different labels, whatever characters
// are in their IDs.
func TestStrangeValuesStayDifferent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxLabel)
	seen := map[string]string{}
	for _, value := range []string{"1-1", "1\n1", "1\t1", "1\x1b[31m1", "1_1", "\xff", "\xfe", "\u202e1", long, long + "1", long + "2"} {
		got := fit(value)
		if before, ok := seen[got]; ok {
			t.Errorf("%q and %q are both %q", before, value, got)
		}
		seen[got] = value
		if len(got) > maxLabel || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q becomes %q of %d bytes, want at most %d printable ones", value, got, len(got), maxLabel)
		}
	}
	if got := fit("1-1"); got != "1-1" {
		t.Errorf("1-1 becomes %q", got)
	}
}
