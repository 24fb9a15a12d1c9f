package docker

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// securityOptions lists the accepted values of SecurityOpt.
const securityOptions = "only what adds a protection is accepted: no-new-privileges, seccomp=builtin, seccomp={JSON of a profile that refuses by default}, apparmor=PROFILE and label=level:LEVEL"

// checkSecurity returns an error if an option removes a protection, or is not known to add a
// protection. The error names the first such option.
func (o Options) checkSecurity() error {
	for _, option := range o.SecurityOpt {
		if why := weakens(option); why != "" {
			return fmt.Errorf("security option %.100q refused: %s; %s", option, why, securityOptions)
		}
	}
	return nil
}

// weakens returns the reason why an option is refused; "" means that the option is accepted.
func weakens(option string) string {
	name, value, given := strings.Cut(option, "=")
	if !given { // an older spelling that daemons still accept
		name, value, given = strings.Cut(option, ":")
	}
	switch name {
	case "no-new-privileges":
		if on, err := strconv.ParseBool(value); given && (err != nil || !on) {
			return "programs with the setuid bit would gain privileges"
		}
	case "seccomp":
		return weakSeccomp(value)
	case "apparmor":
		if value == "" || strings.Contains(strings.ToLower(value), "unconfined") {
			return "no AppArmor profile would confine the container"
		}
	case "label":
		if !strings.HasPrefix(value, "level:") {
			return "SELinux might no longer confine the container"
		}
	default:
		return "it is not known to add a protection"
	}
	return ""
}

// weakSeccomp returns the reason why a seccomp profile is refused; "" means that the profile is
// accepted.
func weakSeccomp(profile string) string {
	if profile == "builtin" {
		return ""
	}
	var p struct{ DefaultAction string }
	if err := json.Unmarshal([]byte(profile), &p); err != nil {
		return "it turns off the filter of system calls, or is no profile in JSON"
	}
	switch p.DefaultAction {
	case "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_TRAP":
		return ""
	}
	return fmt.Sprintf("the profile lets every system call through that it does not name (its defaultAction is %q)", p.DefaultAction)
}
