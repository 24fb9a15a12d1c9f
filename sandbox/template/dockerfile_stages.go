package template

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// dockerStage is a stage of a Dockerfile, or an image that COPY --from names.
type dockerStage struct {
	name   string // name in errors and logs
	made   Definition
	values variables       // variables set by the file so far
	envs   map[string]bool // names of the variables set by ENV
	hidden variables       // values of ENV that an ARG replaces until the end of the stage
	copied []*dockerStage  // the stages that this stage, or a stage that it begins with, copies from

	hasUser, hasWorkdir bool
	command, entrypoint *parser.Node
	inherited           bool // the command comes from the stage that this stage begins with
	// the platforms that this stage, and the stages that it begins with, require
	platforms []platform
}

// convert returns the definition of the stage target; "" means the last stage. The error lists all
// invalid instructions. After an invalid FROM, no further instructions are checked.
func (c *conversion) convert(nodes []*parser.Node, target string) (Definition, error) {
	first := slices.IndexFunc(nodes, func(n *parser.Node) bool { return name(n) == "FROM" })
	if first < 0 {
		return Definition{}, errors.New("there is no FROM, so the build has no base")
	}
	c.dockerStage = &dockerStage{values: c.global}
	for _, n := range nodes[:first] {
		err := fmt.Errorf("%s before FROM", name(n))
		if name(n) == "ARG" {
			err = c.arg(n)
		}
		if err != nil {
			return Definition{}, fmt.Errorf("line %d: %w", n.StartLine, err)
		}
	}
	var wrong []error
	for _, n := range nodes[first:] {
		do := c.instruction
		if name(n) == "FROM" {
			do = c.beginStage
		}
		if err := do(n); err != nil {
			wrong = append(wrong, fmt.Errorf("line %d: %w", n.StartLine, err))
			if name(n) == "FROM" { // later instructions have no stage
				break
			}
			c.made.err = nil
		}
	}
	if len(wrong) > 0 {
		return Definition{}, errors.Join(wrong...)
	}
	built, err := c.target(target)
	if err != nil {
		return Definition{}, err
	}
	return c.finished(built)
}

// stageName matches the valid names of a stage.
var stageName = lazyregexp.New(`^[a-z][a-z0-9-_.]*$`)

// beginStage begins a stage.
func (c *conversion) beginStage(n *parser.Node) error {
	found, err := flags(n, []string{"platform"}, nil, nil)
	if err != nil {
		return err
	}
	args := values(n)
	if len(args) != 1 && (len(args) != 3 || !strings.EqualFold(args[1], "as")) {
		return errors.New("FROM wants an image, and AS with a name at most")
	}
	c.dockerStage = &dockerStage{values: c.global} // FROM sees no other variables
	platforms, err := c.platform(n, found["platform"])
	if err != nil {
		return err
	}
	image, err := c.resolved(args[0])
	if err != nil {
		return err
	}
	if image == "" || strings.Contains(image, "$") {
		return fmt.Errorf("the image %q is not known: an ARG before FROM must have a value", args[0])
	}
	next := c.beginning(image)
	next.platforms = append(slices.Clip(next.platforms), platforms...)
	next.name = strconv.Itoa(len(c.stages))
	if len(args) == 3 {
		next.name = strings.ToLower(args[2])
		if !stageName().MatchString(next.name) {
			return fmt.Errorf("%q cannot be the name of a stage: letters, then also digits, hyphens, underscores and dots", args[2])
		}
		if _, taken := c.stage(next.name); taken {
			return fmt.Errorf("a stage before is called %s, too", next.name)
		}
	}
	c.dockerStage = next
	c.stages = append(c.stages, next)
	return nil
}

// beginning returns a new stage that begins with an image or a stage.
func (c *conversion) beginning(from string) *dockerStage {
	if before, ok := c.stage(from); ok {
		next := *before
		next.unhide()
		next.envs, next.copied = maps.Clone(before.envs), slices.Clip(before.copied)
		next.inherited = next.command != nil
		return &next
	}
	return &dockerStage{made: FromImage(from, nil).User("root").Workdir("/"), values: variables{}, envs: map[string]bool{}}
}

// unhide restores the values of ENV that an ARG has replaced.
func (s *dockerStage) unhide() {
	var pairs []string
	s.values = maps.Clone(s.values)
	for _, name := range slices.Sorted(maps.Keys(s.hidden)) {
		s.values[name] = s.hidden[name]
		pairs = append(pairs, name, expanding(s.hidden[name]))
	}
	if len(pairs) > 0 {
		s.made = s.made.with("ENV", pairs...)
	}
	s.hidden = nil
}

// stage returns an earlier stage by its name.
func (c *conversion) stage(name string) (*dockerStage, bool) {
	at := slices.IndexFunc(c.stages, func(s *dockerStage) bool { return s.name == strings.ToLower(name) })
	if at < 0 {
		return nil, false
	}
	return c.stages[at], true
}

// numbered returns an earlier stage by its name or number. FROM does not accept numbers.
func (c *conversion) numbered(text string) (*dockerStage, bool) {
	if i, err := strconv.Atoi(text); err == nil && i >= 0 && i < len(c.stages) {
		return c.stages[i], true
	}
	return c.stage(text)
}

// target returns the stage to build.
func (c *conversion) target(name string) (*dockerStage, error) {
	if name == "" {
		return c.stages[len(c.stages)-1], nil
	}
	if found, ok := c.numbered(name); ok {
		return found, nil
	}
	names := make([]string, len(c.stages))
	for i, s := range c.stages {
		names[i] = s.name
	}
	return nil, fmt.Errorf("it has no stage %q to build; it has %s", name, strings.Join(names, ", "))
}

// copiedFrom returns the stage or image that COPY --from names.
func (c *conversion) copiedFrom(text string) (*dockerStage, error) {
	if strings.Contains(text, "$") {
		return nil, fmt.Errorf("--from=%s: variables are not known here: name it by a stage, FROM %[1]s AS name", text)
	}
	found, ok := c.numbered(text)
	switch _, err := strconv.Atoi(text); {
	case ok && found == c.dockerStage:
		return nil, fmt.Errorf("--from=%s: a stage cannot copy from itself", text)
	case !ok && err == nil:
		return nil, fmt.Errorf("--from=%s: there is no stage of that number before", text)
	case !ok && strings.EqualFold(text, "scratch"):
		return nil, fmt.Errorf("--from=%s: there is nothing in it", text)
	case ok:
		return found, nil
	}
	of := "image " + text
	if at := slices.IndexFunc(c.images, func(s *dockerStage) bool { return s.name == of }); at >= 0 {
		return c.images[at], nil
	}
	image := &dockerStage{name: of, made: FromImage(text, nil)}
	c.images = append(c.images, image)
	return image, nil
}

// finished returns the definition of a stage, including the stages that it needs.
func (c *conversion) finished(s *dockerStage) (Definition, error) {
	s.unhide()
	d := s.made
	if command := startCommand(s.entrypoint, s.command); strings.TrimSpace(command) != "" {
		d = d.Start(command, WaitFor(20*time.Second))
	}
	if !s.hasUser {
		d = d.User("user")
	}
	if !s.hasWorkdir {
		d = d.Workdir("/home/user")
	}
	d.platforms = s.platforms
	for _, from := range needed(s) {
		d.stages = append(d.stages, stage{name: from.name, image: from.made.image, steps: from.made.steps})
		d.platforms = append(slices.Clip(d.platforms), from.platforms...)
	}
	return d, d.err
}

// needed returns the stages that a stage needs. Each stage comes after the stages that it needs
// itself.
func needed(s *dockerStage) []*dockerStage {
	var all []*dockerStage
	seen := map[*dockerStage]bool{}
	var visit func(*dockerStage)
	visit = func(s *dockerStage) {
		for _, from := range s.copied {
			if !seen[from] {
				seen[from] = true
				visit(from)
				all = append(all, from)
			}
		}
	}
	visit(s)
	return all
}
