package template

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	quoted "github.com/e2bctl/e2bctl/internal/shell"
)

// maxDockerfile is far more than a Dockerfile needs.
const maxDockerfile = 1 << 20

// DockerfileParams says how to read a Dockerfile. The zero value has no build arguments.
type DockerfileParams struct {
	// Args are values of the arguments that ARG declares, in place of its defaults.
	Args map[string]string
}

// FromDockerfile reads a Dockerfile with one stage, as E2B's builders do: FROM, RUN, COPY
// and ADD of files, WORKDIR, USER, ENV, ARG, CMD and ENTRYPOINT, with here-documents. ARG
// is as ENV: the variable is there in sandboxes, too. The command is the one to start, and
// is ready after 20 seconds unless [Definition.Ready] says otherwise. Without USER and
// WORKDIR, the user is "user" and the directory /home/user in sandboxes, where the steps run
// as root in "/".
//
// What would not do what the file says is an error: several stages, COPY --from, ADD of an
// address. Instructions that mean nothing for a sandbox are skipped, and what else is left
// out is in [Definition.Warnings].
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
	c := conversion{words: shell.NewLex(parsed.EscapeToken), values: variables{}, given: map[string]string{}}
	c.words.SkipUnsetEnv = true
	if p != nil {
		c.given = maps.Clone(p.Args)
	}
	for _, warning := range parsed.Warnings {
		c.warn(warning.Location, "%s", warning.Short)
	}
	if err := c.convert(parsed.AST.Children); err != nil {
		return d.failed("Dockerfile: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.given)) {
		c.warn(nil, "no ARG declares the build argument %s", name)
	}
	c.made.warnings = c.warnings
	return c.made
}

// lineOf returns where the parser found an error.
func lineOf(err error) string {
	if at, ok := errors.AsType[*parser.LocationError](err); ok && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		return fmt.Sprintf(", line %d", at.Locations[0][0].Start.Line)
	}
	return ""
}

// variables are those that the file has set so far.
type variables map[string]string

// Get implements shell.EnvGetter.
func (v variables) Get(name string) (string, bool) { value, ok := v[name]; return value, ok }

// Keys implements shell.EnvGetter.
func (v variables) Keys() []string { return slices.Collect(maps.Keys(v)) }

// conversion makes a definition of a Dockerfile.
type conversion struct {
	words    *shell.Lex
	values   variables
	given    map[string]string // build arguments that no ARG has taken yet
	warnings []string
	made     Definition

	hasUser, hasWorkdir bool
	command, entrypoint *parser.Node
}

func (c *conversion) warn(at *parser.Range, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at != nil {
		text = fmt.Sprintf("line %d: %s", at.Start.Line, text)
	}
	c.warnings = append(c.warnings, "Dockerfile: "+text)
}

// at returns the line of an instruction, for a warning.
func at(n *parser.Node) *parser.Range {
	return &parser.Range{Start: parser.Position{Line: n.StartLine}}
}

func name(n *parser.Node) string { return strings.ToUpper(n.Value) }

func (c *conversion) convert(nodes []*parser.Node) error {
	first := slices.IndexFunc(nodes, func(n *parser.Node) bool { return name(n) == "FROM" })
	if first < 0 {
		return errors.New("no FROM says what to begin with")
	}
	for i, n := range nodes {
		if i > first && name(n) == "FROM" {
			return fmt.Errorf("line %d: a second FROM: several stages are not supported", n.StartLine)
		}
		if i < first && name(n) != "ARG" {
			return fmt.Errorf("line %d: %s before FROM", n.StartLine, name(n))
		}
	}
	// Those before FROM are for its image, and for the steps, too.
	declared := nodes[:first]
	for _, n := range declared {
		if err := c.arg(n); err != nil {
			return fmt.Errorf("line %d: %w", n.StartLine, err)
		}
	}
	before := c.made.steps
	if err := c.from(nodes[first]); err != nil {
		return fmt.Errorf("line %d: %w", nodes[first].StartLine, err)
	}
	c.made = c.made.User("root").Workdir("/")
	c.made.steps = append(c.made.steps, before...)
	for _, n := range nodes[first+1:] {
		if err := c.instruction(n); err != nil {
			return fmt.Errorf("line %d: %w", n.StartLine, err)
		}
	}
	if command := c.startCommand(); strings.TrimSpace(command) != "" {
		c.made = c.made.Start(command, WaitFor(20*time.Second))
	}
	if !c.hasUser {
		c.made = c.made.User("user")
	}
	if !c.hasWorkdir {
		c.made = c.made.Workdir("/home/user")
	}
	return c.made.err
}

// ignored are instructions that mean nothing for a sandbox.
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
		c.made = c.made.User(user)
		return err
	case "ENV":
		return c.env(n)
	case "ARG":
		return c.arg(n)
	case "CMD":
		c.command = n
		return c.noFlags(n)
	case "ENTRYPOINT":
		c.entrypoint = n
		return c.noFlags(n)
	}
	if !slices.Contains(ignored, name(n)) {
		c.warn(at(n), "%s is not supported, and left out", name(n))
	}
	return nil
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

// flags returns the flags of an instruction. Those of dropped are left out with a warning.
func (c *conversion) flags(n *parser.Node, known, dropped []string) (map[string]string, error) {
	found := map[string]string{}
	for _, text := range n.Flags {
		flag, value, _ := strings.Cut(strings.TrimPrefix(text, "--"), "=")
		_, twice := found[flag]
		switch {
		case slices.Contains(dropped, flag):
			c.warn(at(n), "--%s of %s is not supported, and left out", flag, name(n))
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
	_, err := c.flags(n, nil, nil)
	return err
}

// text returns a word without quotes and escapes, and with its references to variables,
// which are the service's to resolve: it knows those of the image, too.
func (c *conversion) text(word string) (string, error) {
	text, _, err := c.words.ProcessWord(word, variables{})
	return text, err
}

// resolved returns a word with the values of its variables, if the file sets all of them,
// and otherwise as text does. It is for words in which services resolve none.
func (c *conversion) resolved(word string) (string, error) {
	value, missing, err := c.words.ProcessWord(word, c.values)
	if err != nil || len(missing) > 0 || strings.Contains(value, "$") {
		return c.text(word)
	}
	return value, nil
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

func (c *conversion) from(n *parser.Node) error {
	if _, err := c.flags(n, nil, []string{"platform"}); err != nil {
		return err
	}
	args := values(n)
	if len(args) != 1 && (len(args) != 3 || !strings.EqualFold(args[1], "as")) {
		return errors.New("FROM wants an image, and AS with a name at most")
	}
	image, err := c.resolved(args[0])
	if err != nil {
		return err
	}
	if image == "" || strings.Contains(image, "$") {
		return fmt.Errorf("the image %q is not known: an ARG before FROM must have a value", args[0])
	}
	c.made = FromImage(image, nil)
	return nil
}

// set sets variables in the order of the file.
func (c *conversion) set(pairs []string) {
	c.made = c.made.with("ENV", pairs...)
}

func (c *conversion) env(n *parser.Node) error {
	if err := c.noFlags(n); err != nil {
		return err
	}
	args := values(n) // name, value and what was between them, in turn
	var pairs []string
	known := maps.Clone(c.values)
	for i := 0; i+2 < len(args); i += 3 {
		key, err := c.text(args[i])
		if err != nil {
			return err
		}
		if key == "" {
			return errors.New("ENV with an empty name")
		}
		value, err := c.text(args[i+1])
		if err != nil {
			return err
		}
		pairs = append(pairs, key, value)
		if known[key], err = c.value(args[i+1]); err != nil {
			return err
		}
	}
	c.values = known
	c.set(pairs)
	return nil
}

// value returns what a variable has in later words. Variables that the file has not set
// stay references.
func (c *conversion) value(word string) (string, error) {
	value, _, err := c.words.ProcessWord(word, c.values)
	return value, err
}

func (c *conversion) arg(n *parser.Node) error {
	if err := c.noFlags(n); err != nil {
		return err
	}
	var pairs []string
	for _, word := range values(n) {
		before, after, _ := strings.Cut(word, "=")
		key, err := c.text(before)
		if err != nil {
			return err
		}
		if key == "" {
			return errors.New("ARG with an empty name")
		}
		value, given := c.given[key]
		if !given {
			if value, err = c.text(after); err != nil {
				return err
			}
			if c.values[key], err = c.value(after); err != nil {
				return err
			}
		} else {
			delete(c.given, key)
			c.values[key] = value
		}
		pairs = append(pairs, key, value)
	}
	c.set(pairs)
	return nil
}

// octalMode is what --chmod may be.
var octalMode = lazyregexp.New(`^[0-7]{3,4}$`)

// address is what ADD would fetch.
var address = lazyregexp.New(`(?i)^([a-z][a-z0-9+.-]*://|git@)`)

var (
	copyFlags        = []string{"chown", "chmod", "from"}
	copyFlagsDropped = []string{"link", "exclude", "parents"}
	addFlagsDropped  = []string{"link", "exclude", "parents", "keep-git-dir", "checksum", "unpack"}
)

func (c *conversion) copy(n *parser.Node) error {
	dropped := copyFlagsDropped
	if name(n) == "ADD" {
		dropped = addFlagsDropped
	}
	flags, err := c.flags(n, copyFlags, dropped)
	if err != nil {
		return err
	}
	if from, ok := flags["from"]; ok {
		return fmt.Errorf("%s --from=%s: there are no other stages or images to copy from", name(n), from)
	}
	args := values(n)
	if len(args) < 2 {
		return fmt.Errorf("%s wants sources and a target", name(n))
	}
	to := placed{line: n}
	if to.owner, err = c.resolved(flags["chown"]); err != nil {
		return err
	}
	if to.mode, err = c.resolved(flags["chmod"]); err != nil {
		return err
	}
	if to.mode != "" && !octalMode().MatchString(to.mode) {
		return fmt.Errorf("--chmod=%s is not an octal mode such as 0755", to.mode)
	}
	if to.target, err = c.resolved(args[len(args)-1]); err != nil {
		return err
	}
	for _, word := range args[:len(args)-1] {
		if err := c.copyOne(word, to); err != nil {
			return err
		}
	}
	return nil
}

// placed says where COPY puts something, and as whose.
type placed struct {
	target, owner, mode string
	line                *parser.Node
}

func (c *conversion) copyOne(word string, to placed) error {
	if here, err := parser.ParseHeredoc(word); err == nil && here != nil {
		at := slices.IndexFunc(to.line.Heredocs, func(h parser.Heredoc) bool { return h.Name == here.Name })
		if at < 0 {
			return fmt.Errorf("the here-document %s has no text", here.Name)
		}
		return c.copyText(to.line.Heredocs[at], to)
	}
	from, err := c.resolved(word)
	if err != nil {
		return err
	}
	if name(to.line) == "ADD" && address().MatchString(from) {
		return fmt.Errorf("ADD %s: addresses are not supported; fetch it with RUN", from)
	}
	mode, err := strconv.ParseUint("0"+to.mode, 8, 32)
	if err != nil {
		return err
	}
	d := c.made.Copy(from, to.target, &CopyParams{User: to.owner, Mode: fileMode(uint32(mode))})
	c.made = d
	return d.err
}

// startCommand returns the command to start, of CMD and ENTRYPOINT as Docker joins them.
func (c *conversion) startCommand() string {
	switch {
	case c.entrypoint == nil && c.command == nil:
		return ""
	case c.entrypoint == nil:
		return commandOf(c.command)
	case !isList(c.entrypoint): // runs in a shell of its own, which gets no arguments
		return commandOf(c.entrypoint)
	}
	words := values(c.entrypoint)
	if c.command != nil {
		more := values(c.command)
		if !isList(c.command) && len(more) > 0 {
			more = []string{"/bin/sh", "-c", more[0]}
		}
		words = append(words, more...)
	}
	return quote(words)
}

// commandOf returns what a shell runs for the arguments of an instruction.
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
