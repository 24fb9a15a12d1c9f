package doctor

import (
	"fmt"
	"path/filepath"
	"strings"
)

// packagedProgram is the place of e2bctl in packages of distributions, which bring its profile.
const packagedProgram = "/usr/bin/e2bctl"

// profileText is an AppArmor profile that allows user namespaces to one program, and restricts it in
// nothing. The verbs are the name of the profile, the path of the program, and the name again.
const profileText = `# Ubuntu refuses user namespaces, in which e2bctl runs sandboxes, to programs without such a profile.
abi <abi/4.0>,
include <tunables/global>

profile %s %s flags=(unconfined) {
  userns,

  include if exists <local/%s>
}
`

// plain has the characters that have no meaning in profiles, unlike *, and the slash.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-/"

// profile is the AppArmor profile of one program.
type profile struct{ Name, Program, Text string }

// profileOf returns the profile that the program at an absolute path needs.
func profileOf(program string) (profile, error) {
	isPath := filepath.IsAbs(program) && filepath.Clean(program) == program && program != "/"
	if !isPath || strings.Trim(program, plain) != "" {
		return profile{}, fmt.Errorf("write an AppArmor profile for %q: its path must have only letters, digits and the characters . _ + - between slashes: move the program", program)
	}
	name := "e2bctl"
	if program != packagedProgram {
		name = strings.ReplaceAll(program[1:], "/", ".")
	}
	return profile{name, program, fmt.Sprintf(profileText, name, program, name)}, nil
}

// path returns the file from which the machine loads the profile at its start.
func (p *profile) path() string { return "/etc/apparmor.d/" + p.Name }
