package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/internal/pip"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// Guard says what the code of a run may import and call. The zero value allows
// [GuardModules], no processes, no connections, and a million turns of a while
// loop.
//
// A guard is a guardrail and a record, not isolation: it tells a model early and
// in its own words what it is not to do. The boundary is the sandbox with its
// network rules. The guard is in the same process as the code, which can get
// around it. These ways are known:
//
//   - objects of libraries that keep a module in an attribute, by self in a class
//     that is derived from theirs;
//   - format strings, which show what an attribute is ('{0.__class__}') though
//     they do not give it;
//   - what takes the name of an attribute as text: operator.attrgetter,
//     string.Formatter, functools.update_wrapper, and a match statement with a
//     class that says its own __match_args__;
//   - libraries that run or import what they are given (DataFrame.eval and query,
//     timeit, pkgutil, optional imports of pandas);
//   - libraries that open files themselves (pandas.read_csv, numpy.save, codecs):
//     what is refused is open;
//   - functions in C that import what they are told, which is what unpickling
//     does (pickle, pandas.read_pickle, numpy.load);
//   - extension modules, and any module that was allowed and leads there (sys,
//     gc, inspect, ctypes);
//   - functions that were defined before the run keep what they could do;
//   - globals, locals, vars, eval and exec, where Functions allows them: the
//     modules that were imported before the run.
//
// What a cell spells out is checked before any of it runs: imports that are not
// in a try with a handler, double-underscore attributes, frames, commands of the
// shell. Everything else is refused where it happens, as the Python exception
// GuardViolation, which is an ImportError where an import fails. Modules come as
// stand-ins that hold the same functions and classes and run at full speed;
// to assign to a name of a module changes the stand-in alone. What was in the
// context before the run stays as it was, and its code runs as ever: services keep
// there what displays values. A module there becomes a stand-in where the run's
// code names it, which costs a call each time unless that code imports it itself.
//
// A guard is on from Begin to Close for all code of the context, also that of
// [sandbox.Sandbox.RunCode].
type Guard struct {
	// Allow are modules beside [GuardModules] and those of Params.Packages.
	// "numpy" is that module without its submodules, "numpy.*" it and all below,
	// "numpy.random" that one and nothing else of numpy, "*" all but those of
	// [DangerousModules], which have to be named.
	Allow []string
	// Presets allow what is installed of a list of modules.
	Presets []Preset
	// Deny are modules, in the form of Allow, that no other field allows.
	Deny []string
	// Functions are those of [DangerousFunctions] that code may call after all.
	Functions []string
	// Processes allows to start processes and to load foreign libraries.
	Processes bool
	// Network allows connections, as far as the sandbox's network rules do.
	Network bool
	// MaxIterations is how many turns one while loop may make. 0 means
	// [DefaultMaxIterations], less than 0 no bound.
	MaxIterations int
	// MaxOperations is how many turns of loops and comprehensions, and calls of
	// functions that the code defines, one step may make. 0 means no bound. The
	// work of libraries does not count: Limits.StepTimeout bounds that.
	MaxOperations int
}

// DefaultMaxIterations bounds a while loop when Guard.MaxIterations is 0.
const DefaultMaxIterations = 1_000_000

// Preset is a list of modules that a kind of task needs.
type Preset string

// The presets. Packages are allowed with all their submodules.
const (
	DataAnalysis   Preset = "data analysis"   // numpy, pandas, statistics, math, collections
	TextProcessing Preset = "text processing" // re, string, textwrap, collections
	Science        Preset = "science"         // numpy, scipy, statistics, math
	Utilities      Preset = "utilities"       // json, datetime, collections, itertools, functools
)

var presets = map[Preset][]string{
	DataAnalysis:   {"numpy.*", "pandas.*", "statistics", "math", "collections"},
	TextProcessing: {"re", "string", "textwrap", "collections"},
	Science:        {"numpy.*", "scipy.*", "statistics", "math"},
	Utilities:      {"json", "datetime", "collections", "itertools", "functools"},
}

// Modules are those that the preset allows, in the form of Guard.Allow: a model
// is better told what it may import.
func (p Preset) Modules() []string { return slices.Clone(presets[p]) }

// GuardModules are the modules that every guard allows. Others of Python's own
// (json, functools, string, textwrap, copy, enum, typing) are for Guard.Allow or
// a preset.
func GuardModules() []string {
	return []string{
		"collections", "datetime", "itertools", "math", "queue", "random", "re", "stat", "statistics", "time", "unicodedata",
	}
}

// DangerousModules are those that "*" in Guard.Allow does not allow.
func DangerousModules() []string {
	return []string{
		"_ctypes", "_io", "_pickle", "_posixsubprocess", "_socket", "builtins", "code", "ctypes", "gc", "importlib", "inspect", "io",
		"multiprocessing", "nt", "os", "pathlib", "pickle", "posix", "pty", "runpy", "shutil", "socket", "subprocess", "sys",
	}
}

// DangerousFunctions are the functions that a guard refuses to call.
func DangerousFunctions() []string {
	return []string{"breakpoint", "compile", "eval", "exec", "globals", "locals", "open", "vars"}
}

// Violation is something that a guard refused. All text comes from the sandbox.
type Violation struct {
	// Rule is "import", "module" (one that another module led to), "dunder",
	// "frame", "function", "process", "network", "shell", "loop", "operations",
	// "syntax" (what cannot be checked) or "tampering".
	Rule string `json:"rule" py:"rule"`
	// Name is the module, attribute, function or event.
	Name string `json:"name" py:"name"`
	// Line is where in the code, from 1; 0 when unknown.
	Line int `json:"line" py:"line"`
	// Message says what was refused.
	Message string `json:"message" py:"message"`
	// Suggestion says what to do instead, in words for the model.
	Suggestion string `json:"suggestion" py:"suggestion"`
}

func (v Violation) String() string {
	if v.Line > 0 {
		return fmt.Sprintf("%s (line %d). %s", v.Message, v.Line, v.Suggestion)
	}
	return v.Message + ". " + v.Suggestion
}

// GuardError is a guard that cannot be put on. It is [api.ErrInvalidArgument].
type GuardError struct {
	// Field is that of [Guard] which is wrong, empty when the kernel refused.
	Field string
	// Value is what is wrong.
	Value string
	// Reason says why.
	Reason string
}

func (e *GuardError) Error() string {
	if e.Field == "" {
		return "agent: guard: " + e.Reason
	}
	return fmt.Sprintf("agent: Guard.%s %q: %s", e.Field, clip.Text(e.Value, 64), e.Reason)
}

// Is matches [api.ErrInvalidArgument].
func (e *GuardError) Is(target error) bool { return target == api.ErrInvalidArgument }

const (
	// guardKey names the expression that gives what the guard saw.
	guardKey = "guard"
	// guardName is the class of what it raises.
	guardName = "GuardViolation"
	// maxViolations is more than a guard in order reports of one step.
	maxViolations = 200
	// maxGuardText bounds each text of a violation.
	maxGuardText = 2048
)

var (
	guardModule = lazyregexp.New(`^(\*|[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*(\.\*)?)$`)

	errGuardOff = errors.New("the guard is off, or what it answers is malformed: code got around it")
)

// guardConfig is what the guard in the kernel is told.
type guardConfig struct {
	Allow []string `json:"allow"`
	// Optional are allowed where they are installed.
	Optional []string `json:"optional"`
	// Distributions allow the modules that they installed.
	Distributions []string `json:"distributions"`
	Deny          []string `json:"deny"`
	Named         []string `json:"named"`
	Functions     []string `json:"functions"`
	Processes     bool     `json:"processes"`
	Network       bool     `json:"network"`
	Turns         int      `json:"turns"`
	Operations    int      `json:"operations"`
}

// config checks a guard. Nil is none.
func (g *Guard) config(packages []string) (*guardConfig, error) {
	if g == nil {
		return nil, nil
	}
	c := &guardConfig{
		Allow: append(GuardModules(), g.Allow...), Optional: []string{}, Distributions: []string{},
		Deny: append([]string{}, g.Deny...), Named: DangerousModules(), Functions: DangerousFunctions(),
		Processes: g.Processes, Network: g.Network, Turns: g.MaxIterations, Operations: g.MaxOperations,
	}
	for field, modules := range map[string][]string{"Allow": g.Allow, "Deny": g.Deny} {
		for _, module := range modules {
			if !guardModule().MatchString(module) {
				return nil, &GuardError{field, module, `not the name of a module ("numpy", "numpy.random", "numpy.*" or "*")`}
			}
		}
	}
	for _, preset := range g.Presets {
		modules, ok := presets[preset]
		if !ok {
			return nil, &GuardError{"Presets", string(preset), "there is no such preset"}
		}
		c.Optional = append(c.Optional, modules...)
	}
	for _, name := range g.Functions {
		i := slices.Index(c.Functions, name)
		if i < 0 && !slices.Contains(DangerousFunctions(), name) {
			return nil, &GuardError{"Functions", name, "not one of DangerousFunctions: those alone are refused"}
		}
		if i >= 0 {
			c.Functions = slices.Delete(c.Functions, i, i+1)
		}
	}
	switch {
	case g.MaxOperations < 0:
		return nil, &GuardError{"MaxOperations", fmt.Sprint(g.MaxOperations), "less than 0; 0 is no bound"}
	case c.Turns == 0:
		c.Turns = DefaultMaxIterations
	case c.Turns < 0:
		c.Turns = 0
	}
	if len(packages) > 0 {
		parsed, err := pip.ParseAll(packages)
		if err != nil {
			return nil, err
		}
		c.Distributions = pip.Names(parsed)
	}
	return c, nil
}

// arm puts a guard on in the context's kernel.
func (c *runContext) arm(ctx context.Context, host runHost, config *guardConfig) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	arm := pyshim.CallGuard("arm", string(text))
	_, err = c.call(ctx, host, arm)
	if failed, ok := errors.AsType[*kernelCallError](err); ok && pyshim.GuardNotInstalled(failed.name, failed.value) {
		if err := c.install(ctx, host, pyshim.InstallGuard()); err != nil {
			return err
		}
		_, err = c.call(ctx, host, arm)
	}
	if failed, ok := errors.AsType[*kernelCallError](err); ok {
		return &GuardError{Reason: fmt.Sprintf("%.64s: %s", failed.name, clip.Text(failed.value, 512))}
	}
	return err
}

// guardReport is what the guard saw in one step.
type guardReport struct {
	Violations []Violation `py:"violations"`
	Imports    []string    `py:"imports"`
}

// bound cuts what the sandbox made too long, after redact is done to its texts.
func (g *guardReport) bound(redact func(string) string) {
	g.Imports = g.Imports[:min(len(g.Imports), maxImports)]
	g.Violations = g.Violations[:min(len(g.Violations), maxViolations)]
	for i := range g.Violations {
		v := &g.Violations[i]
		for _, text := range []*string{&v.Rule, &v.Name, &v.Message, &v.Suggestion} {
			*text = clip.Text(redact(*text), maxGuardText)
		}
	}
}

// report adds to a step what the guard saw. A reply to code that failed does not
// have it, so it is asked for. redact is done to its texts.
func (c *runContext) report(ctx context.Context, host runHost, reply jupyter.ExecuteReply, step *Step, redact func(string) string) error {
	doc, err := expressionValue(reply, guardKey)
	if reply.Status != "ok" {
		c.mu.Lock()
		defer c.mu.Unlock()
		doc, err = c.evaluate(ctx, host, pyshim.CallGuard("report"))
	}
	var report guardReport
	if err == nil {
		if err = state.Unmarshal(doc, &report); err != nil {
			err = &kernelCallError{"ValueError", err.Error()}
		}
	}
	if failed, ok := errors.AsType[*kernelCallError](err); ok {
		if pyshim.GuardNotInstalled(failed.name, failed.value) {
			return fmt.Errorf("the run began with another kernel: %w", sandbox.ErrKernelDied)
		}
		return fmt.Errorf("%w: %w", errGuardOff, err)
	}
	if err != nil {
		return err
	}
	report.bound(redact)
	step.Imports, step.Violations = report.Imports, report.Violations
	for i := range step.Violations {
		v := &step.Violations[i]
		if step.Error != nil && step.Error.Name == guardName && step.Error.Value == v.String() {
			step.Refused = v
			step.Error.Line = v.Line
		}
	}
	return nil
}
