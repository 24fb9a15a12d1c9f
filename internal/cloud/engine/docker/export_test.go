package docker

import "github.com/e2bctl/e2bctl/internal/cloud/engine"

// CopyPrograms makes an engine copy its program, as for a daemon on another machine.
func CopyPrograms(e engine.Engine) { e.(*Engine).copies = true }

// HandoverOf returns the directory where the daemon found the mounts of a sandbox.
func HandoverOf(s engine.Sandbox) string { return s.(*sandbox).handover.dir }

// SetSecurityOpt replaces the SecurityOpt of an open engine. It takes options that Open refuses.
func SetSecurityOpt(e engine.Engine, options ...string) { e.(*Engine).options.SecurityOpt = options }
