package engine

import "fmt"

// LackError means that a sandbox cannot have a feature, because its engine or this machine lacks the
// feature. Sometimes this is found only when the sandbox starts, or only for one directory of the
// sandbox.
//
// errors.Is matches a LackError with a target that has the same feature and no reason.
type LackError struct {
	Feature Feature
	Why     error // the reason, and the remedy
}

func (e *LackError) Error() string {
	text := "sandboxes cannot have " + string(e.Feature)
	if e.Why != nil {
		text += ": " + e.Why.Error()
	}
	return text
}

// Unwrap returns the reason.
func (e *LackError) Unwrap() error { return e.Why }

// Is reports whether target is the lack of the same feature, for any reason.
func (e *LackError) Is(target error) bool {
	lack, ok := target.(*LackError)
	return ok && lack.Feature == e.Feature && lack.Why == nil
}

// Lackf returns a *LackError. Its reason is fmt.Errorf(format, args...).
func Lackf(f Feature, format string, args ...any) error {
	return &LackError{f, fmt.Errorf(format, args...)}
}

// Check returns a *LackError if the feature is missing.
func (p Promises) Check(f Feature) error {
	if why := p[f]; why != "" {
		return Lackf(f, "%s", why)
	}
	return nil
}

// CheckOptions returns a *LackError if a sandbox with these options needs a feature that is missing.
func (p Promises) CheckOptions(o SandboxOptions) error {
	for _, need := range []struct {
		feature Feature
		needed  bool
	}{
		{Images, o.Image != nil},
		{SharedLayers, len(o.Layers) > 0},
		{Volumes, len(o.Volumes) > 0},
		{Mounts, len(o.Mounts) > 0},
		{HeaderRules, len(o.Authority) > 0},
	} {
		if !need.needed {
			continue
		}
		if err := p.Check(need.feature); err != nil {
			return err
		}
	}
	return nil
}
