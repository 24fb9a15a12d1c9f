package internal_test

import (
	"go/types"
	"regexp"
	"strings"
	"testing"
)

// limitTypes are the types whose every number is a limit.
var limitTypes = regexp.MustCompile(`(Limits|Budget|Bounds)$`)

// otherLimits are the words for a limit that are not MaxX, XTimeout or XBytes, and other
// units than bytes.
var otherLimits = regexp.MustCompile(`Limit$|Quota|Ceiling|AtMost|Maximum|(Mem|KB|MB|GB|KiB|MiB|GiB|CPUCount|CPUCores)$`)

// sizes are the names of quantities counted in bytes.
var sizes = regexp.MustCompile(`^(Max|Min)?(Memory|Disk)(Used|Total|Cache|Free)?$|^Size$`)

// TestLimitNames holds the exported API to the rule of GLOSSARY.md: a limit is MaxX, a time is
// Timeout or XTimeout, and bytes are an int64 named XBytes.
func TestLimitNames(t *testing.T) {
	t.Parallel()
	statSources(t)
	for _, p := range publicPackages(t) {
		for name, kind := range numbersOf(p) {
			if why := wrongLimitName(name, kind); why != "" {
				t.Errorf("%s %v: %s", name, kind, why)
			}
		}
	}
}

// TestWrongLimitName tries the rules themselves, on former names of the API.
func TestWrongLimitName(t *testing.T) {
	t.Parallel()
	duration := types.NewNamed(types.NewTypeName(0, types.NewPackage("time", "time"), "Duration", nil), types.Typ[types.Int64], nil)
	for name, kind := range map[string]types.Type{
		"agent.Budget.Depth":            types.Typ[types.Int],
		"agent.Budget.Time":             duration,
		"agent.Limits.MaxOutputBytes":   types.Typ[types.Int],
		"agent.Limits.MaxDuration":      duration,
		"api.ListParams.Limit":          types.Typ[types.Int],
		"api.SandboxInfo.CPUCount":      types.Typ[types.Int],
		"api.SandboxInfo.DiskSizeMB":    types.Typ[types.Int],
		"api.Usage.MemoryUsed":          types.Typ[types.Int64],
		"local.DockerParams.CPUQuota":   types.Typ[types.Int64],
		"local.DockerParams.MemLimit":   types.Typ[types.Int64],
		"local.WithVolumeSize":          types.Typ[types.Int64],
		"sandbox.CommandParams.Timeout": types.Typ[types.Int],
		"sandbox.FileInfo.Size":         types.Typ[types.Int],
	} {
		if wrongLimitName(name, kind) == "" {
			t.Errorf("%s %v breaks no rule", name, kind)
		}
	}
	for name, kind := range map[string]types.Type{
		"agent.Budget.MaxCalls":        types.Typ[types.Int],
		"agent.Budget.Timeout":         duration,
		"api.SandboxInfo.MemoryBytes":  types.Typ[types.Int64],
		"sandbox.FileInfo.Size":        types.Typ[types.Int64],
		"sandbox.Expiry.After":         duration,
		"sandbox.DefaultMaxBytes":      types.Typ[types.UntypedInt],
		"local.WithMaxVolumeBytes":     types.Typ[types.Int64],
		"local.Resources.MaxProcesses": types.Typ[types.Int],
	} {
		if why := wrongLimitName(name, kind); why != "" {
			t.Errorf("%s %v: %s", name, kind, why)
		}
	}
}

// numbersOf returns the fields, constants and parameters of options of a package that are
// numbers, by their full names. A parameter has the name of its function.
func numbersOf(p *types.Package) map[string]types.Type {
	found := map[string]types.Type{}
	note := func(name string, kind types.Type) {
		if pointer, ok := kind.(*types.Pointer); ok {
			kind = pointer.Elem()
		}
		if basic, ok := kind.Underlying().(*types.Basic); ok && basic.Info()&types.IsNumeric != 0 {
			found[p.Name()+"."+name] = kind
		}
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			note(name, o.Type())
		case *types.Func:
			if parameters := o.Signature().Params(); strings.HasPrefix(name, "With") && parameters.Len() == 1 {
				note(name, parameters.At(0).Type())
			}
		case *types.TypeName:
			shape, ok := o.Type().Underlying().(*types.Struct)
			if !ok || o.IsAlias() {
				continue
			}
			for field := range shape.Fields() {
				if field.Exported() {
					note(name+"."+field.Name(), field.Type())
				}
			}
		}
	}
	return found
}

// wrongLimitName returns the rule that a number breaks, or "" for none.
func wrongLimitName(full string, kind types.Type) string {
	words := strings.Split(full, ".")
	name := words[len(words)-1]
	isTime := types.TypeString(kind, nil) == "time.Duration"
	basic := kind.Underlying().(*types.Basic)
	isInt64 := basic.Kind() == types.Int64 || basic.Kind() == types.UntypedInt
	timed, counted := strings.HasSuffix(name, "Timeout"), strings.HasSuffix(name, "Bytes")
	most := strings.HasPrefix(name, "Max")
	switch {
	case otherLimits.MatchString(name):
		return "a limit is MaxX, XTimeout or XBytes, and processors are CPUs"
	case timed && !isTime, isTime && most:
		return "a limit of time is a time.Duration named Timeout or XTimeout"
	case counted && (isTime || !isInt64):
		return "bytes are an int64"
	case name == "Size" && isInt64: // as in package io/fs
		return ""
	case sizes.MatchString(name), strings.HasSuffix(name, "Size") && name != "PageSize":
		return "bytes are an int64 named XBytes"
	case len(words) == 3 && limitTypes.MatchString(words[1]) && !most && !timed:
		return "a limit is MaxX, or XTimeout"
	}
	return ""
}
