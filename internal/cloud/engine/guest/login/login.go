// Package login contains the texts of the files that the shells of a sandbox read when they start or
// end.
package login

import (
	"strings"

	"github.com/e2bctl/e2bctl/internal/shell"
)

// PathFile is a file that sets PATH in login shells. Of the files in /etc/profile.d, a profile
// returned by Profile reads PathFile first, so that the other files can add to PATH.
const PathFile = "/etc/profile.d/00-e2bctl.sh"

// Lines that Profile adds before and after the text of an /etc/profile. On most systems, that text
// sets PATH unconditionally. E2B_SANDBOX is set in shells that were started by envd, or by a program
// that envd started. The PATH of these shells must stay: it is the PATH of envd, or a PATH that a
// client requested. E2B_SANDBOX is not set after su, sudo -i or env -i, because these commands clear
// the environment.
const (
	profileHead = "e2bctl_path=${E2B_SANDBOX:+$PATH}\n"
	profileTail = "if [ -n \"${e2bctl_path+set}\" ] && [ -r " + PathFile + " ]; then . " + PathFile + "; fi\n" +
		"if [ -n \"${BASH_VERSION-}\" ] && [ -f ~/.bashrc ]; then . ~/.bashrc; fi\n" +
		"if [ -f ~/.profile ]; then . ~/.profile; fi\n"
)

// PlainProfile is the text of an /etc/profile that reads the files *.sh in the directory of PathFile.
// The /etc/profile of most systems reads these files, too.
const PlainProfile = "for e2bctl_file in /etc/profile.d/*.sh; do if [ -r \"$e2bctl_file\" ]; then . \"$e2bctl_file\"; fi; done\n" +
	"unset e2bctl_file\n"

// Profile returns the text of an /etc/profile, made from text. text is the image's own /etc/profile,
// or PlainProfile. Like the profile of E2B's service, the new profile keeps the PATH that was given to
// a command, and reads the user's .bashrc and .profile at its end. If text is already a result of
// Profile, Profile returns text unchanged, even if lines were added to text since then.
func Profile(text string) string {
	if strings.Contains(text, profileHead) && strings.Contains(text, profileTail) {
		return text
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return profileHead + text + profileTail
}

// PathText returns the text of PathFile, where path is the PATH of envd's processes.
func PathText(path string) string {
	return "PATH=${e2bctl_path:-" + shell.Quote(path) + "}\nexport PATH\nunset e2bctl_path\n"
}

// InPlaceProfile returns the text of .profile for sandboxes in which shells read the machine's own
// /etc/profile before .profile. When such a shell reads .profile, only the kernel still has the PATH
// with which the shell was started, in /proc/PID/environ.
func InPlaceProfile(path string) string {
	return `e2bctl_path=
if [ -n "${E2B_SANDBOX-}" ] && [ -n "${BASH_VERSION-}" ]; then
	while IFS= read -r -d '' e2bctl_path; do
		case $e2bctl_path in PATH=*) break ;; esac
		e2bctl_path=
	done </proc/$$/environ
	e2bctl_path=${e2bctl_path#PATH=}
fi
` + PathText(path) + UserProfile
}

// UserProfile is the .profile of a new home.
const UserProfile = `# Read by login shells. Bash reads .bash_profile or .bash_login instead, if there is one.
if [ -n "${BASH_VERSION-}" ] && [ -f ~/.bashrc ]; then
	. ~/.bashrc
fi
for e2bctl_dir in ~/bin ~/.local/bin; do
	case :$PATH: in
	*:$e2bctl_dir:*) ;;
	*) if [ -d "$e2bctl_dir" ]; then PATH=$e2bctl_dir:$PATH; fi ;;
	esac
done
unset e2bctl_dir
`

// UserBashrc is the .bashrc of a new home. It sets the prompt of E2B's service, even if PS1 already
// had a value. It may do so, because programs that drive a terminal wait for a prompt that they set
// themselves.
const UserBashrc = `# Read by interactive shells, and by login shells of a sandbox.
case $- in
*i*) ;;
*) return ;;
esac
HISTCONTROL=ignoreboth
HISTSIZE=1000
HISTFILESIZE=2000
shopt -s histappend checkwinsize
PS1='\w \$ '
if command -v dircolors >/dev/null; then
	eval "$(dircolors -b)"
	alias ls='ls --color=auto' grep='grep --color=auto'
fi
alias ll='ls -alF' la='ls -A' l='ls -CF'
if [ -f ~/.bash_aliases ]; then
	. ~/.bash_aliases
fi
if ! shopt -oq posix && [ -f /usr/share/bash-completion/bash_completion ]; then
	. /usr/share/bash-completion/bash_completion
fi
`

// UserLogout is the .bash_logout of a new home.
const UserLogout = `# Read when a login shell of bash ends.
if [ "$SHLVL" = 1 ] && command -v clear_console >/dev/null; then
	clear_console -q
fi
`

// SystemBashrc is the text of /etc/bash.bashrc. Interactive shells read it before the user's own
// .bashrc, if bash was built with this feature.
const SystemBashrc = `case $- in
*i*) ;;
*) return ;;
esac
shopt -s checkwinsize
PS1='\w \$ '
`
