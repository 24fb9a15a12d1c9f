//go:build linux

package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// plan describes how the packages of a module are tested. The names of packages are relative to the
// module. A name that ends in "/..." also includes all packages below it.
type plan struct {
	// plain lists packages that are tested without the race detector. Their tests run other programs,
	// or do nothing concurrently. The code that these tests use is tested with the race detector by
	// the tests of other packages.
	plain []string
	// sequential lists, for each of some other packages, tests that do nothing concurrently, and that
	// the race detector makes ten times slower. They run without it, except with -allrace, and the
	// package's other tests with it. Each string is the name of a test, or of a file with tests.
	sequential map[string][]string
	// longest lists packages that are started first, so that the run does not wait for them at the
	// end.
	longest []string
	// ordinary lists, for each package, the tests that run as root and again as the account without
	// special rights. Each string is the name of a test, or of a file with tests. Nil means all tests
	// of the package.
	ordinary map[string][]string
	// once lists packages whose failed tests are never repeated. In every other package, a failed test
	// is not repeated if the name of the test contains one of onceWords.
	once      []string
	onceWords []string
	// stressed lists the packages whose tests "make stress" repeats under load.
	stressed []string
}

// module is the plan of this module.
var module = plan{
	plain: []string{
		"cli/...", "examples/...", // run programs, and clouds that their own packages test
		"internal",             // reads sources
		"internal/bench",       // measures
		"internal/cloud/pyenv", // waits for pip
		"internal/e2e",         // make soak runs it with the detector
		"internal/interop",     // runs programs of others
		"internal/packaging",   // runs npm and pip
		"internal/readme",      // compiles
		"internal/realservice", // runs a program of others
		"sandbox/local",        // starts clouds that their own packages test, and has no goroutine of its own
	},
	sequential: map[string][]string{
		"sandbox/agent": {"TestRepeatedSecret", "TestSecretInShortText"},
		"state":         {"bound_test.go", "encode_test.go", "file_test.go", "generated_test.go", "leaf_test.go", "property_test.go"},
	},
	longest: []string{
		"internal/e2e", "internal/interop", "internal/packaging", "internal/cloud/engine/room", "sandbox/local",
		"internal/realservice", "sandbox/agent", "internal/bench", "sandbox", "internal/cloud/kernel", "internal/cloud",
		"internal/readme", "internal/cloud/envd", "internal/cloud/pyenv", "cli", "state", "internal/cloud/interpreter", "internal",
		"internal/cloud/linuxprogram", "cli/internal/mcpserver", "internal/cloud/lifecycle", "internal/cloud/control",
		"internal/testrun",
	},
	// Tests that touch accounts, isolation, control groups, maps of ids, or files of
	// the account. All others behave the same for every account.
	ordinary: map[string][]string{
		"cli":                               {"TestAccountScripts", "TestRunIsStopped"},
		"cli/internal/cmd/local":            {"asker_test.go", "prune_test.go", "trust_test.go"},
		"cli/internal/localcloud":           {"allowed_test.go", "place_test.go", "shared_test.go"},
		"examples/quickstart":               nil,
		"internal/cloud":                    {"cloud_test.go", "hostmounts_test.go", "memory_test.go", "state_test.go", "volumes_test.go"},
		"internal/cloud/child":              {"child_test.go", "lookpath_test.go", "TestGroupOutlivesLeader", "TestMemory", "TestSignalSparesSuccessor", "TestWaitTakesNoThread"},
		"internal/cloud/engine/room":        nil,
		"internal/cloud/engine/room/cgroup": {"bounds_test.go", "cgroup_test.go", "freeze_test.go", "processes_test.go", "remove_test.go", "resize_test.go"},
		"internal/cloud/engine/room/halt":   nil,
		"internal/cloud/engine/room/inside": {
			"apt_test.go", "contained_test.go", "endure_test.go", "gvisorwatch_test.go", "image_test.go", "processors_test.go",
		},
		"internal/cloud/engine/room/instance": {"belongs_test.go", "instance_test.go", "reap_test.go"},
		"internal/cloud/engine/room/layer":    {"untar_bounds_test.go", "untar_hostile_test.go", "untar_test.go", "whole_test.go"},
		"internal/cloud/engine/room/orphan":   nil,
		"internal/cloud/engine/room/saved":    {"saved_test.go"},
		"internal/cloud/engine/room/spawn":    {"placement_test.go"},
		"internal/cloud/envd": {
			"accounts_test.go", "building_test.go", "special_test.go",
			"TestCloseEndsEverything", "TestCredential", "TestKillReachesGroup", "TestProcessesAreBounded", "TestTerminal",
		},
		"internal/cloud/gvisorenv": nil,
		"internal/cloud/mounts":    {"mounts_test.go", "show_linux_test.go", "target_test.go"},
		"internal/cloud/pyenv":     {"python_test.go", "shared_unix_test.go", "shortage_unix_test.go", "unused_test.go"},
		"internal/cloud/store":     {"inspect_linux_test.go", "remove_linux_test.go"},
		"internal/cloud/survey":    {"survey_test.go"},
		"internal/cloud/treecopy":  {"treecopy_test.go"},
		"internal/cloud/volumes":   nil,
		"internal/e2e": {
			"bombs_test.go", "build_test.go", "changes_test.go", "escape_test.go", "files_test.go",
			"fromfiles_test.go", "headers_test.go", "images_test.go", "memory_test.go", "network_test.go",
			"pause_test.go", "plain_test.go", "program_test.go", "restart_test.go", "server_test.go", "snapshot_test.go",
			"surroundings_test.go", "TestMetrics", "volumes_test.go", "volumesize_test.go", "zygote_test.go",
		},
		"internal/privatedir": {"privatedir_test.go"},
		"sandbox/local": {
			"hostile_test.go", "isolation_test.go", "ladder_test.go", "onlinux_test.go", "promises_test.go", "python_test.go",
			"shortage_test.go", "TestSandbox", "TestEgress", "TestManyAtOnce", "TestStart", "TestTwoClouds", "TestWarmCount",
		},
		"sandbox/sandboxtest": nil,
	},
	// A fault in the code that keeps programs inside and secrets outside may show in
	// one run of many. Each such failure must be investigated.
	once: []string{
		"examples/internal/leak", "internal/cloud/connlimit", "internal/cloud/engine/room/cgroup",
		"internal/cloud/engine/room/layer", "internal/cloud/engine/room/seccomp", "internal/cloud/headers",
		"internal/cloud/localtls", "internal/cloud/network", "internal/cloud/secrets", "internal/privatedir",
	},
	onceWords: []string{
		"Apart", "Ask", "Attack", "Auth", "Bomb", "Capability", "ClosedTree", "Credential", "CrossOrigin", "Denial",
		"Denied", "Device", "Egress", "Escape", "Flood", "Foreign", "Forged", "Guard", "HeaderRules", "Hijack",
		"Hostile", "Inherited", "Insecure", "Internet", "Isolat", "Key", "Leak", "Marks", "Misdirected", "Namespaces",
		"Network", "Outside", "Owner", "Private", "Proxy", "Rebinding", "Redact", "Redirect", "Restricted", "Secret",
		"Sideways", "Signature", "Signed", "Smuggling", "Token", "Traffic", "Trust", "Umask", "Uninherited",
		"UserMap", "Users", "WithoutWay",
	},
	stressed: []string{
		"api", "cli/...", "examples/...", "internal/bench", "internal/cloud", "internal/cloud/builds", "internal/cloud/child",
		"internal/cloud/connlimit", "internal/cloud/control", "internal/cloud/edge", "internal/cloud/engine/...",
		"internal/cloud/envd", "internal/cloud/envdclient", "internal/cloud/headers", "internal/cloud/image",
		"internal/cloud/interpreter", "internal/cloud/kernel/...", "internal/cloud/lifecycle", "internal/cloud/localtls",
		"internal/cloud/network", "internal/cloud/pyenv", "internal/cloud/store", "internal/cloud/telemetry",
		"internal/cloud/volumes", "internal/e2e", "internal/httpwait", "internal/interop", "internal/jupyter",
		"internal/kernelconn", "internal/realservice", "sandbox/...",
	},
}

// covers reports whether one of the patterns matches the name of a package.
func covers(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		below, all := strings.CutSuffix(pattern, "/...")
		return name == below || all && strings.HasPrefix(name, below+"/")
	})
}

// check returns an error for each name in the plan that matches no package with tests. Without this
// check, a package that is renamed could silently lose its tests, or its place in the plan.
func (p plan) check(packages []pkg) error {
	for list, patterns := range map[string][]string{"plain": p.plain, "longest": p.longest, "once": p.once, "stressed": p.stressed} {
		for _, pattern := range patterns {
			if !slices.ContainsFunc(packages, func(k pkg) bool { return covers([]string{pattern}, k.name) }) {
				return fmt.Errorf("the list %s of internal/testrun has %s, and there is no such package with tests", list, pattern)
			}
		}
	}
	for list, chosen := range map[string]map[string][]string{"ordinary": p.ordinary, "sequential": p.sequential} {
		for name := range chosen {
			i := slices.IndexFunc(packages, func(k pkg) bool { return k.name == name })
			if i < 0 {
				return fmt.Errorf("the list %s of internal/testrun has %s, and there is no such package with tests", list, name)
			}
			if _, err := chosenTests(list, packages[i], chosen[name]); err != nil {
				return err
			}
		}
	}
	for name := range p.sequential {
		if covers(p.plain, name) {
			return fmt.Errorf("the lists plain and sequential of internal/testrun both have %s", name)
		}
	}
	return nil
}

// ordinaryTests returns those tests of a package that the ordinary user repeats. Nil means all
// tests.
func (p plan) ordinaryTests(k pkg) ([]string, error) {
	return chosenTests("ordinary", k, p.ordinary[k.name])
}

// sequentialTests returns those tests of a package that run without the race detector although the
// others run with it.
func (p plan) sequentialTests(k pkg) ([]string, error) {
	return chosenTests("sequential", k, p.sequential[k.name])
}

// chosenTests returns the tests of a package that a list chooses by their names and files. Nil means
// all tests.
func chosenTests(list string, k pkg, chosen []string) ([]string, error) {
	if chosen == nil {
		return nil, nil
	}
	byFile, err := testsOf(k.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, choice := range chosen {
		tests, known := byFile[choice], true
		if !strings.HasSuffix(choice, ".go") {
			tests, known = []string{choice}, false
			for _, all := range byFile {
				known = known || slices.Contains(all, choice)
			}
		}
		if len(tests) == 0 || !known {
			return nil, fmt.Errorf("the list %s of internal/testrun has %s of %s, and there are no such tests", list, choice, k.name)
		}
		names = append(names, tests...)
	}
	return names, nil
}

// testsOf returns the tests of a package, keyed by the names of their files. The tests include
// examples, and fuzz targets, which run with their seeds.
func testsOf(dir string) (map[string][]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		found[filepath.Base(path)] = testNames(file)
	}
	return found, nil
}

// isOnce reports whether the plan forbids repeating a failed test.
func (p plan) isOnce(name, test string) bool {
	return covers(p.once, name) || slices.ContainsFunc(p.onceWords, func(word string) bool { return strings.Contains(test, word) })
}

// rank returns the position of a package in the order in which packages are started.
func (p plan) rank(name string) int {
	if i := slices.Index(p.longest, name); i >= 0 {
		return i
	}
	return len(p.longest)
}
