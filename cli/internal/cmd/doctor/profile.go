package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
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

// plainPath matches paths that contain no character with a meaning in profiles, such as *.
var plainPath = lazyregexp.New(`^(/[A-Za-z0-9_.+-]+)+$`)

// profile is the AppArmor profile of one program.
type profile struct{ Name, Program, Text string }

// profileOf returns the profile that the program at an absolute path needs.
func profileOf(program string) (profile, error) {
	if !plainPath().MatchString(program) || filepath.Clean(program) != program {
		return profile{}, fmt.Errorf("write an AppArmor profile for %q: %w", program, errPath)
	}
	name := "e2bctl"
	if program != packagedProgram {
		name = strings.ReplaceAll(program[1:], "/", ".")
	}
	return profile{name, program, fmt.Sprintf(profileText, name, program, name)}, nil
}

// errPath means that a profile cannot name a path.
var errPath = errors.New("its path must have only letters, digits and the characters . _ + - between slashes: move the program")

// path returns the file from which the machine loads the profile at its start.
func (p *profile) path() string { return "/etc/apparmor.d/" + p.Name }
