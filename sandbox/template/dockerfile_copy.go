package template

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// octalMode matches the modes that --chmod accepts.
var octalMode = lazyregexp.New(`^[0-7]{3,4}$`)

// address matches the sources that Docker's ADD would download.
var address = lazyregexp.New(`(?i)^([a-z][a-z0-9+.-]*://|git@)`)

// placed contains the source, the target and the owner of a COPY.
type placed struct {
	target, owner, mode string
	from                *dockerStage // the stage to copy from; nil: the source directory
	unpack              bool         // archives are unpacked
	line                *parser.Node
}

// fileMode parses the octal mode; 0 means that no mode is given.
func (p *placed) fileMode() fs.FileMode {
	bits, _ := strconv.ParseUint("0"+p.mode, 8, 32)
	return fileMode(uint32(bits))
}

func (c *conversion) copy(n *parser.Node) error {
	found, err := copyFlags(n)
	if err != nil {
		return err
	}
	args := values(n)
	if len(args) < 2 {
		return fmt.Errorf("%s wants sources and a target", name(n))
	}
	to := placed{line: n, unpack: name(n) == "ADD" && found["unpack"] != "false"}
	if from, ok := found["from"]; ok {
		if to.from, err = c.copiedFrom(from); err != nil {
			return fmt.Errorf("%s %w", name(n), err)
		}
		c.copied = append(c.copied, to.from)
	}
	if to.owner, err = c.resolved(found["chown"]); err != nil {
		return err
	}
	if to.mode, err = c.resolved(found["chmod"]); err != nil {
		return err
	}
	if to.mode != "" && !octalMode().MatchString(to.mode) {
		return fmt.Errorf("--chmod=%s is not an octal mode such as 0755", to.mode)
	}
	if to.target, err = c.resolved(args[len(args)-1]); err != nil {
		return err
	}
	if len(args) > 2 && !strings.HasSuffix(to.target, "/") && !strings.HasSuffix(to.target, "/.") && to.target != "." {
		return fmt.Errorf("%s of several sources wants a target that ends in /", name(n))
	}
	line := &copyLine{line: n.StartLine}
	for _, word := range args[:len(args)-1] {
		if err := c.copyOne(word, to); err != nil {
			return err
		}
		c.made.steps[len(c.made.steps)-1].copyLine = line // the step is new and not shared
	}
	return nil
}

// copyFlags returns the flags of COPY and ADD. It ignores flags about the linking of layers,
// because they do not change the files.
func copyFlags(n *parser.Node) (map[string]string, error) {
	known, bare := []string{"chown", "chmod", "from"}, []string{"link"}
	refused := map[string]string{
		"exclude": "name what is not to be copied in .dockerignore",
		"parents": "name the directory in the target",
	}
	if name(n) == "ADD" {
		known, bare = []string{"chown", "chmod"}, []string{"link", "unpack"}
		const addresses = "it is for addresses; fetch them with RUN"
		refused["checksum"], refused["keep-git-dir"] = addresses, addresses
		refused["from"] = "use COPY"
	}
	return flags(n, known, bare, refused)
}

func (c *conversion) copyOne(word string, to placed) error {
	if here, err := parser.ParseHeredoc(word); err == nil && here != nil {
		at := slices.IndexFunc(to.line.Heredocs, func(h parser.Heredoc) bool { return h.Name == here.Name })
		switch {
		case to.from != nil:
			return errors.New("COPY --from cannot have a here-document")
		case at < 0:
			return fmt.Errorf("the here-document %s has no text", here.Name)
		}
		return c.copyText(to.line.Heredocs[at], to)
	}
	from, err := c.resolved(word)
	if err != nil {
		return err
	}
	if to.from != nil {
		return c.copyStage(from, to)
	}
	if name(to.line) == "ADD" && address().MatchString(from) {
		return fmt.Errorf("ADD %s: addresses are not supported; fetch it with RUN", from)
	}
	// As in Docker, a source with a leading "/" begins at the source directory.
	if trimmed := strings.TrimLeft(from, "/"); trimmed != from {
		from = "./" + trimmed
	}
	owner := to.owner
	if owner == "" && c.hasUser {
		owner = "root" // even if the current user is another one
	}
	d := c.made.Copy(from, to.target, &CopyParams{User: owner, Mode: to.fileMode()})
	if d.err == nil && to.unpack {
		d.steps[len(d.steps)-1].unpack, d.steps[len(d.steps)-1].owned = true, to.owner != ""
	}
	c.made = d
	return d.err
}

// copyStage copies from another stage. If to names no owner, the files keep their owners.
func (c *conversion) copyStage(from string, to placed) error {
	if from == "" || to.target == "" {
		return errors.New("COPY --from has an empty source or target")
	}
	mode := ""
	if to.mode != "" {
		mode = octal(to.fileMode())
	}
	c.made = c.made.withStep(step{BuildStep: api.BuildStep{Type: "COPY", Args: []string{from, to.target, to.owner, mode}, FromStage: to.from.name}})
	return nil
}
