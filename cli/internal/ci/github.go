package ci

// InActions reports whether this process runs in a step of GitHub Actions, or of a system that
// follows it.
func InActions(getenv func(name string) string) bool { return getenv("GITHUB_ACTIONS") == "true" }
