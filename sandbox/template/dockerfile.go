package template

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	quoted "github.com/e2bctl/e2bctl/internal/shell"
)

// maxDockerfile limits the bytes of a Dockerfile.
const maxDockerfile = 1 << 20

// DockerfileParams sets how to read a Dockerfile. The zero value has no build arguments, and
// builds the last stage.
type DockerfileParams struct {
	// Args contains values of arguments that ARG declares. They replace the defaults of ARG.
	Args map[string]string
	// Target is the stage to build, by its name or number; empty means the last one.
	Target string
}

// FromDockerfile reads a Dockerfile: FROM, RUN, COPY and ADD of files, WORKDIR, USER, ENV, ARG, CMD
// and ENTRYPOINT, with here-documents, and with several stages. ARG works like ENV: sandboxes also
// have the variable. The command of CMD and ENTRYPOINT is started in each sandbox. If
// [Definition.Ready] sets a command, the sandbox is ready when that command succeeds. Otherwise it
// is ready 20 seconds after the start. Without USER and WORKDIR, steps run as root in "/", and
// sandboxes have the user "user" and the directory /home/user. ADD unpacks an archive with the tar
// of the image.
//
// COPY and ADD find sources as Docker does: each match of a pattern is copied under the last
// element of its path, and directories are merged. A pattern without a match copies nothing. A
// symlink that is itself a source is followed within the source directory. Symlinks inside
// directories are copied as symlinks.
//
// The last stage is built, or the stage of DockerfileParams.Target, together with the stages
// that it begins with or copies from. COPY --from may also name an image. Only a local cloud
// supports COPY --from: for another service [Build] returns an error before it sends anything.
//
// --platform of FROM must match the architecture of the service's images. [Build] requests the
// architecture from the service, and returns [errors.ErrUnsupported] if the two differ.
//
// EXPOSE, VOLUME, LABEL and MAINTAINER have no meaning for a sandbox and are skipped. Any other
// unsupported instruction is an error with its line and a replacement. [Definition.Warnings]
// returns the instructions that are omitted because they do not change the result. The README of
// this package lists every difference from Docker.
func FromDockerfile(r io.Reader, p *DockerfileParams) Definition {
	var d Definition
	text, err := io.ReadAll(io.LimitReader(r, maxDockerfile+1))
	switch {
	case err != nil:
		return d.failed("read the Dockerfile: %w", err)
	case len(text) > maxDockerfile:
		return d.failed("the Dockerfile is longer than %d bytes", maxDockerfile)
	}
	parsed, err := parser.Parse(strings.NewReader(string(text)))
	if err != nil {
		return d.failed("Dockerfile%s: %w", lineOf(err), err)
	}
	c := conversion{words: shell.NewLex(parsed.EscapeToken), escape: parsed.EscapeToken, given: map[string]string{}, taken: map[string]bool{}, global: variables{}}
	c.words.SkipUnsetEnv = true
	if p == nil {
		p = &DockerfileParams{}
	}
	c.given = p.Args
	for _, warning := range parsed.Warnings {
		c.warn(warning.Location, "%s", warning.Short)
	}
	if d, err = c.convert(parsed.AST.Children, p.Target); err != nil {
		d.warnings = c.warnings
		return d.failed("Dockerfile: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.given)) {
		if !c.taken[name] {
			c.warn(nil, "no ARG declares the build argument %s", name)
		}
	}
	d.warnings = c.warnings
	return d
}

// lineOf returns the number of the line at which the parser failed, as ", line N". It returns "" if err
// contains no line.
func lineOf(err error) string {
	if at, ok := errors.AsType[*parser.LocationError](err); ok && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		return fmt.Sprintf(", line %d", at.Locations[0][0].Start.Line)
	}
	return ""
}

// conversion converts a Dockerfile to a definition.
type conversion struct {
	words    *shell.Lex
	escape   rune              // escape character of the file
	given    map[string]string // build arguments
	taken    map[string]bool   // build arguments that an ARG has used
	global   variables         // the variables of ARG before the first FROM
	warnings []string
	stages   []*dockerStage // the stages read so far
	images   []*dockerStage // images of COPY --from, as stages without steps

	*dockerStage // the current stage
}

func (c *conversion) warn(at *parser.Range, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at != nil {
		text = fmt.Sprintf("line %d: %s", at.Start.Line, text)
	}
	c.warnings = append(c.warnings, "Dockerfile: "+text)
}

// linesOf returns the lines of an instruction, for a warning.
func linesOf(n *parser.Node) *parser.Range {
	return &parser.Range{Start: parser.Position{Line: n.StartLine}}
}

func name(n *parser.Node) string { return strings.ToUpper(n.Value) }

// ignored lists instructions that have no meaning for a sandbox.
var ignored = []string{"EXPOSE", "VOLUME", "LABEL", "MAINTAINER"}

func (c *conversion) instruction(n *parser.Node) error {
	switch name(n) {
	case "RUN":
		return c.run(n)
	case "COPY", "ADD":
		return c.copy(n)
	case "WORKDIR":
		c.hasWorkdir = true
		path, err := c.single(n)
		c.made = c.made.Workdir(path)
		return err
	case "USER":
		c.hasUser = true
		user, err := c.single(n)
		if err == nil && strings.Contains(user, "$") {
			err = fmt.Errorf("USER %s: a variable in it is not known before the build: give it a value with ARG or ENV", user)
		}
		c.made = c.made.User(user)
		return err
	case "ENV":
		return c.env(n)
	case "ARG":
		return c.arg(n)
	case "CMD":
		c.command, c.inherited = n, false
		return c.noFlags(n)
	case "ENTRYPOINT":
		if c.inherited { // Docker drops the arguments of the inherited command
			c.command, c.inherited = nil, false
		}
		c.entrypoint = n
		return c.noFlags(n)
	}
	if !slices.Contains(ignored, name(n)) {
		return unsupported(n)
	}
	return nil
}

// unsupported returns the error for an unsupported instruction.
func unsupported(n *parser.Node) error {
	instead := ""
	switch name(n) {
	case "HEALTHCHECK":
		instead = "say by Definition.Ready, or --ready-cmd, when a sandbox is ready"
	case "SHELL":
		instead = `commands run in bash; name another program in RUN, such as RUN ["python3", "-c", "..."]`
	case "ONBUILD":
		instead = "write its instruction into the Dockerfile that begins with the template"
	case "STOPSIGNAL":
		instead = "leave it out: a sandbox ends with all that runs in it"
	default:
		return fmt.Errorf("unknown instruction %s", n.Value)
	}
	return fmt.Errorf("%s is not supported: %s", name(n), instead)
}

// values returns the arguments of an instruction.
func values(n *parser.Node) []string {
	var all []string
	for next := n.Next; next != nil; next = next.Next {
		all = append(all, next.Value)
	}
	return all
}

// isList reports whether the arguments were written as a list in JSON.
func isList(n *parser.Node) bool { return n.Attributes["json"] }

// flags returns the flags of an instruction, by name. A flag must be known or bare. A known
// flag needs a value. A bare flag without a value has the value "true". A flag in refused is an
// error, with the advice in refused.
func flags(n *parser.Node, known, bare []string, refused map[string]string) (map[string]string, error) {
	found := map[string]string{}
	for _, text := range n.Flags {
		flag, value, _ := strings.Cut(strings.TrimPrefix(text, "--"), "=")
		instead, no := refused[flag]
		_, twice := found[flag]
		switch {
		case no:
			return nil, fmt.Errorf("--%s of %s is not supported: %s", flag, name(n), instead)
		case slices.Contains(bare, flag):
			found[flag] = cmp.Or(value, "true")
		case !slices.Contains(known, flag):
			return nil, fmt.Errorf("%s has no flag --%s", name(n), flag)
		case value == "":
			return nil, fmt.Errorf("--%s of %s has no value", flag, name(n))
		case twice:
			return nil, fmt.Errorf("--%s of %s is there twice", flag, name(n))
		default:
			found[flag] = value
		}
	}
	return found, nil
}

func (c *conversion) noFlags(n *parser.Node) error {
	_, err := flags(n, nil, nil, nil)
	return err
}

func (c *conversion) single(n *parser.Node) (string, error) {
	if err := c.noFlags(n); err != nil {
		return "", err
	}
	args := values(n)
	if len(args) != 1 {
		return "", fmt.Errorf("%s wants one argument, and has %d", name(n), len(args))
	}
	return c.resolved(args[0])
}

// set sets variables in the order of the file.
func (c *conversion) set(pairs []string) {
	c.made = c.made.with("ENV", pairs...)
}

func (c *conversion) env(n *parser.Node) error {
	if err := c.noFlags(n); err != nil {
		return err
	}
	args := values(n) // name, value and separator, in turn
	if len(args) == 0 {
		return errors.New("ENV without a name")
	}
	var pairs []string
	known := maps.Clone(c.values)
	for i := 0; i+2 < len(args); i += 3 {
		key, err := c.resolved(args[i])
		if err != nil {
			return err
		}
		if key == "" {
			return errors.New("ENV with an empty name")
		}
		if known[key], err = c.value(args[i+1]); err != nil {
			return err
		}
		pairs = append(pairs, key, expanding(known[key]))
	}
	c.values = known
	for i := 0; i < len(pairs); i += 2 {
		c.envs[pairs[i]] = true
		delete(c.hidden, pairs[i])
	}
	c.set(pairs)
	return nil
}

func (c *conversion) arg(n *parser.Node) error {
	if err := c.noFlags(n); err != nil {
		return err
	}
	words := values(n)
	if len(words) == 0 {
		return errors.New("ARG without a name")
	}
	var pairs []string
	for _, word := range words {
		before, after, hasDefault := strings.Cut(word, "=")
		key, err := c.resolved(before)
		if err != nil {
			return err
		}
		if key == "" {
			return errors.New("ARG with an empty name")
		}
		value, has, err := c.argValue(n, key, after, hasDefault)
		if err != nil {
			return err
		}
		if c.envs[key] {
			if !has { // the variable of ENV stays
				continue
			}
			if err := c.hide(key); err != nil {
				return err
			}
		}
		c.values[key] = value
		pairs = append(pairs, key, expanding(value))
	}
	if len(pairs) > 0 {
		c.set(pairs)
	}
	return nil
}

// hide saves the value of an ENV if an ARG of the same name replaces it. As in Docker, later steps
// of the stage use the value of the ARG, and the finished stage has the value of the ENV.
func (c *conversion) hide(key string) error {
	if _, already := c.hidden[key]; already {
		return nil
	}
	if strings.Contains(c.values[key], "$") {
		return fmt.Errorf("ARG %s: ENV has set it to a value with variables that are not known before the build: give the argument another name", key)
	}
	if c.hidden == nil {
		c.hidden = variables{}
	}
	c.hidden[key] = c.values[key]
	return nil
}

// argValue returns the value of the build argument that an ARG declares. has reports whether the
// argument has a value.
func (c *conversion) argValue(n *parser.Node, key, word string, hasDefault bool) (value string, has bool, err error) {
	if value, given := c.given[key]; given {
		c.taken[key] = true
		return literal(value), true, nil
	}
	if value, declared := c.global[key]; declared && !hasDefault {
		return value, true, nil
	}
	if !hasDefault && platformArg().MatchString(key) {
		c.warn(linesOf(n), "ARG %s has no value unless it is given as a build argument", key)
	}
	value, err = c.value(word)
	return value, hasDefault, err
}

// platformArg matches the arguments to which Docker itself gives a value.
var platformArg = lazyregexp.New(`^(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)$`)

// startCommand returns the start command, joined from ENTRYPOINT and CMD like in Docker.
func startCommand(entrypoint, command *parser.Node) string {
	switch {
	case entrypoint == nil && command == nil:
		return ""
	case entrypoint == nil:
		return commandOf(command)
	case !isList(entrypoint): // it runs in its own shell, which receives no arguments
		return commandOf(entrypoint)
	}
	words := values(entrypoint)
	if command != nil {
		more := values(command)
		if !isList(command) && len(more) > 0 {
			more = []string{"/bin/sh", "-c", more[0]}
		}
		words = append(words, more...)
	}
	return quote(words)
}

// commandOf returns the shell command for the arguments of an instruction.
func commandOf(n *parser.Node) string {
	if isList(n) {
		return quote(values(n))
	}
	return strings.Join(values(n), " ")
}

func quote(words []string) string {
	quotedWords := make([]string, len(words))
	for i, word := range words {
		quotedWords[i] = quoted.Quote(word)
	}
	return strings.Join(quotedWords, " ")
}
