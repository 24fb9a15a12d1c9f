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

// Guard configures the modules and functions that the code of a run may use. The zero value
// allows [GuardModules], no processes, no connections, and a million iterations of a while
// loop.
//
// A guard is a guardrail and a record, not isolation: it explains to a model early, and in
// plain words, that something is forbidden. The sandbox with its network rules is the boundary.
// The guard is in the same process as the code, so code can bypass it. These bypasses are
// known:
//
//   - objects of libraries, if an attribute of the object is a module: code in a class that is
//     derived from the object's class reaches this attribute through self;
//   - format strings, which show the text of an attribute ('{0.__class__}') although they do not
//     return the attribute;
//   - functions that take the name of an attribute as text: operator.attrgetter,
//     string.Formatter, functools.update_wrapper, and a match statement with a
//     class that defines its own __match_args__;
//   - libraries that run or import their arguments (DataFrame.eval and query, timeit,
//     pkgutil, optional imports of pandas);
//   - libraries that open files themselves (pandas.read_csv, numpy.save, codecs):
//     only open is refused;
//   - functions in C that import modules named in their input, as unpickling does (pickle,
//     pandas.read_pickle, numpy.load);
//   - extension modules, and any allowed module that leads to them (sys,
//     gc, inspect, ctypes);
//   - functions that were defined before the run: they keep all their abilities;
//   - globals, locals, vars, eval and exec, if Functions allows them: they reach the modules that
//     were imported before the run.
//
// The guard checks the text of a cell before any code of the cell runs. It looks for
// double-underscore attributes, frames, shell commands, and imports outside of a try with a
// handler. It refuses all other forbidden operations when the code performs them, with the Python
// exception GuardViolation. If the operation is an import, the exception is also an ImportError.
//
// Code receives stand-ins for modules. A stand-in contains the same functions and classes as the
// module, and these run at full speed. An assignment to a name of a module changes only the
// stand-in. The guard does not change variables from before the run, because services keep their
// code for displaying values in such variables. If the run's code uses a module that was imported
// before the run, it receives a stand-in. Each such use costs one call. If the run's code imports
// the module itself, there is no such cost.
//
// A guard is active from Begin to Close. It applies to all code of the context, including code of
// [sandbox.Sandbox.RunCode].
type Guard struct {
	// Allow lists modules that are allowed in addition to [GuardModules] and the modules of
	// Params.Packages. "numpy" means this module without its submodules. "numpy.*" means the module
	// and all its submodules. "numpy.random" means only this submodule of numpy. "*" means all modules
	// except [DangerousModules], which must be listed by name.
	Allow []string
	// Presets are lists of modules. Each module of these lists is allowed if it is installed.
	Presets []Preset
	// Deny lists modules that are refused even if other fields allow them. It has the same form as
	// Allow.
	Deny []string
	// Functions lists the [DangerousFunctions] that code may call.
	Functions []string
	// Processes allows starting processes and loading native libraries.
	Processes bool
	// Network allows connections, within the sandbox's network rules.
	Network bool
	// MaxIterations limits the iterations of one while loop. 0 means [DefaultMaxIterations]; a
	// negative number means no limit.
	MaxIterations int
	// MaxOperations limits the operations of one step. An operation is an iteration of a loop or
	// comprehension, or a call of a function that the code defines. 0 means no limit. The work of
	// libraries does not count. Limits.StepTimeout bounds the time of this work.
	MaxOperations int
}

// DefaultMaxIterations is the default of [Guard].MaxIterations.
const DefaultMaxIterations = 1_000_000

// Preset is a list of modules for one kind of task.
type Preset string

// These are the presets. Each preset allows the listed modules with all their submodules.
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

// Modules returns the modules of the preset, in the form of Guard.Allow. Put the list into a
// prompt, because models write better code if they know the allowed imports.
func (p Preset) Modules() []string { return slices.Clone(presets[p]) }

// GuardModules returns the modules that every guard allows. Other modules of Python's
// standard library (json, functools, string, textwrap, copy, enum, typing) need
// Guard.Allow or a preset.
func GuardModules() []string {
	return []string{
		"collections", "datetime", "itertools", "math", "queue", "random", "re", "stat", "statistics", "time", "unicodedata",
	}
}

// DangerousModules returns the modules that "*" in Guard.Allow does not allow.
func DangerousModules() []string {
	return []string{
		"IPython", "__main__", "_ctypes", "_frozen_importlib", "_frozen_importlib_external", "_imp", "_io", "_pickle",
		"_posixsubprocess", "_sitebuiltins", "_socket", "builtins", "code", "ctypes", "gc", "imp", "importlib", "inspect", "io",
		"ipykernel", "multiprocessing", "nt", "os", "pathlib", "pickle", "pkgutil", "posix", "pty", "pydoc", "runpy", "shutil",
		"site", "socket", "subprocess", "sys", "zipimport",
	}
}

// DangerousFunctions returns the functions whose calls a guard refuses by default. Guard.Functions
// allows them by name.
func DangerousFunctions() []string {
	return []string{"breakpoint", "compile", "eval", "exec", "globals", "help", "locals", "open", "vars"}
}

// Rule is the kind of a refusal by a guard.
type Rule string

// These are the rules of a guard.
const (
	RuleImport     Rule = "import"     // a module that is not allowed
	RuleModule     Rule = "module"     // a module that is not allowed, reached through another one
	RuleDunder     Rule = "dunder"     // an attribute that begins with two underscores
	RuleFrame      Rule = "frame"      // an attribute that leads to frames or to code
	RuleFunction   Rule = "function"   // a function such as eval or open
	RuleProcess    Rule = "process"    // starting a process
	RuleNetwork    Rule = "network"    // opening a connection
	RuleShell      Rule = "shell"      // a magic or a command of IPython
	RuleLoop       Rule = "loop"       // more iterations than Guard.MaxIterations
	RuleOperations Rule = "operations" // more operations than Guard.MaxOperations
	RuleSyntax     Rule = "syntax"     // code that cannot be checked
	RuleTampering  Rule = "tampering"  // an attempt to bypass the guard
)

// Violation describes one refusal by a guard. All text comes from the sandbox.
type Violation struct {
	// Rule is the rule that the code broke. It may be a text other than the constants of type Rule,
	// because it comes from the sandbox.
	Rule Rule `json:"rule" py:"rule"`
	// Name is the name of the refused module, attribute, function or event.
	Name string `json:"name" py:"name"`
	// Line is the line in the code, counted from 1; 0 if unknown.
	Line int `json:"line" py:"line"`
	// Message describes the refusal.
	Message string `json:"message" py:"message"`
	// Suggestion describes an alternative for the model.
	Suggestion string `json:"suggestion" py:"suggestion"`
}

func (v Violation) String() string {
	if v.Line > 0 {
		return fmt.Sprintf("%s (line %d). %s", v.Message, v.Line, v.Suggestion)
	}
	return v.Message + ". " + v.Suggestion
}

// GuardError reports an invalid guard. It matches [sandbox.ErrInvalidArgument].
type GuardError struct {
	// Field is the invalid field of [Guard]; empty if the kernel refused the guard.
	Field string
	// Value is the invalid value.
	Value string
	// Reason is the reason why the value is invalid.
	Reason string
}

func (e *GuardError) Error() string {
	if e.Field == "" {
		return "agent: guard: " + e.Reason
	}
	return fmt.Sprintf("agent: Guard.%s %q: %s", e.Field, clip.Text(e.Value, 64), e.Reason)
}

// Is reports whether target is [sandbox.ErrInvalidArgument].
func (e *GuardError) Is(target error) bool { return target == api.ErrInvalidArgument }

const (
	// guardKey names the expression that returns the guard's report.
	guardKey = "guard"
	// guardName is the class of the exceptions that the guard raises.
	guardName = "GuardViolation"
	// maxViolations limits the violations of one step. A working guard reports fewer.
	maxViolations = 200
	// maxGuardText limits the bytes of each text of a violation.
	maxGuardText = 2048
)

var (
	guardModule = lazyregexp.New(`^(\*|[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*(\.\*)?)$`)

	errGuardOff = errors.New("the guard is off, or its answer is malformed: code got around it")
)

// guardConfig is the configuration that the guard in the kernel receives.
type guardConfig struct {
	Allow []string `json:"allow"`
	// Optional lists modules that are allowed if they are installed.
	Optional []string `json:"optional"`
	// Distributions lists packages whose modules are allowed.
	Distributions []string `json:"distributions"`
	Deny          []string `json:"deny"`
	Named         []string `json:"named"`
	Functions     []string `json:"functions"`
	Processes     bool     `json:"processes"`
	Network       bool     `json:"network"`
	Turns         int      `json:"turns"`
	Operations    int      `json:"operations"`
}

// config checks the guard and converts it. It returns nil for a nil guard.
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
		return nil, &GuardError{"MaxOperations", fmt.Sprint(g.MaxOperations), "less than 0; 0 means that there is no bound"}
	case c.Turns == 0:
		c.Turns = DefaultMaxIterations
	case c.Turns < 0:
		c.Turns = 0
	}
	if len(packages) > 0 {
		parsed, err := pip.ParseAll(packages)
		if refused, ok := errors.AsType[*pip.RefusedError](err); ok {
			err = (*sandbox.RequirementError)(refused)
		}
		if err != nil {
			return nil, adviseImport(err)
		}
		c.Distributions = pip.Names(parsed)
	}
	return c, nil
}

// arm activates a guard in the context's kernel.
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

// guardReport is the guard's report on one step.
type guardReport struct {
	Violations []Violation `py:"violations"`
	Imports    []string    `py:"imports"`
}

// bound redacts the texts of the report, and shortens long texts.
func (g *guardReport) bound(redact *redactor) {
	g.Imports = g.Imports[:min(len(g.Imports), maxImports)]
	for i := range g.Imports {
		g.Imports[i] = redact.short(g.Imports[i], maxGuardText)
	}
	g.Violations = g.Violations[:min(len(g.Violations), maxViolations)]
	for i := range g.Violations {
		v := &g.Violations[i]
		v.Rule = Rule(redact.short(string(v.Rule), maxGuardText))
		for _, text := range []*string{&v.Name, &v.Message, &v.Suggestion} {
			*text = redact.short(*text, maxGuardText)
		}
	}
}

// report adds the guard's report to a step. A reply to failed code does not contain the report,
// so report fetches it with a second request. It applies redact to the texts.
func (c *runContext) report(ctx context.Context, host runHost, reply jupyter.ExecuteReply, step *Step, redact *redactor) error {
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
	refused := -1
	if step.Error != nil && step.Error.Name == guardName {
		// Compare with the exception's whole text, because bound may have shortened the other.
		refused = slices.IndexFunc(report.Violations, func(v Violation) bool { return redact.text(v.String()) == step.Error.Value })
	}
	report.bound(redact)
	step.Imports, step.Violations = report.Imports, report.Violations
	if 0 <= refused && refused < len(step.Violations) {
		step.Refused = &step.Violations[refused]
		step.Error.Line = step.Refused.Line
	}
	return nil
}
