package templates

import (
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// Team is the namespace of the only team's templates. DefaultTag is the tag of a reference
// without a tag.
const (
	Team       = "local"
	DefaultTag = "default"
)

// Bounds of names from clients.
const (
	maxName    = 128
	maxMessage = 300
)

// Reference names a template and one of its builds.
type Reference struct {
	// Namespace and Tag may be empty. Tag may also be the id of a build. No id of a build is a valid
	// tag.
	Namespace, Name, Tag string
	text                 string
}

// ParseReference parses any text as a reference. The template that the result names need not
// exist.
func ParseReference(text string) Reference {
	name, tag, _ := strings.Cut(text, ":")
	namespace, rest, ok := strings.Cut(name, "/")
	if !ok {
		namespace, rest = "", name
	}
	return Reference{normal(namespace), normal(rest), normal(tag), text}
}

// tag returns the tag of the reference, or DefaultTag if the reference has no tag.
func (ref *Reference) tag() string {
	if ref.Tag == "" {
		return DefaultTag
	}
	return ref.Tag
}

func (ref *Reference) String() string { return clip.Text(ref.text, maxMessage) }

func normal(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// Names reports whether the reference names the template t. It ignores the tag of the reference.
func (ref *Reference) Names(t *Template) bool {
	if ref.Namespace == "" && ref.Name == t.ID {
		return true
	}
	return ref.Name != "" && ref.Name == t.Name && (ref.Namespace == "" || ref.Namespace == Team && !t.BuiltIn)
}

// HasTag reports whether the tag of the reference is tag, or the id of build.
func (ref *Reference) HasTag(tag string, build *Build) bool {
	return ref.Tag == tag || ref.Tag == build.ID
}

// CheckName returns an error if clients may not use the name and the tag of the reference for a
// template.
func (ref *Reference) CheckName() error {
	if err := ref.CheckTeam(); err != nil {
		return err
	}
	if len(ref.Name) > maxName || !aName().MatchString(ref.Name) {
		return refusef(Invalid, "the name '%s' must be 1 to %d letters, digits, hyphens and underscores", ref, maxName)
	}
	if ref.Tag != "" || strings.HasSuffix(ref.text, ":") {
		return checkTag(ref.Tag)
	}
	return nil
}

// CheckTeam returns an error if the reference is in the namespace of another team.
func (ref *Reference) CheckTeam() error {
	if ref.Namespace != "" && ref.Namespace != Team {
		return refusef(Invalid, "'%s' is of the team '%s', and the one of this local cloud is '%s'", ref, clip.Text(ref.Namespace, maxMessage), Team)
	}
	return nil
}

// ParseTag returns a tag in its normal form. It returns an error if the tag is not valid.
func ParseTag(text string) (string, error) {
	tag := normal(text)
	return tag, checkTag(tag)
}

func checkTag(tag string) error {
	if len(tag) > maxName || !aTag().MatchString(tag) || aUUID().MatchString(tag) {
		return refusef(Invalid, "the tag '%s' must be 1 to %d letters, digits, hyphens, underscores and dots, and no UUID", clip.Text(tag, maxMessage), maxName)
	}
	return nil
}

var (
	aName = lazyregexp.New(`^[a-z0-9_-]+$`)
	aTag  = lazyregexp.New(`^[a-z0-9_.-]+$`)
	aUUID = lazyregexp.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// Kind is the kind of a refusal. Programs use it, and not the text of an [Error], to distinguish
// refusals.
type Kind int

// Kinds of refusals.
const (
	NotFound Kind = iota
	Invalid
	BuiltIn  // the template cannot be changed
	Conflict // another template has the name
	Full
)

// Error reports a refusal. Its text is for the client.
type Error struct {
	Kind Kind
	text string
}

func (e *Error) Error() string { return e.text }

func refusef(kind Kind, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// missing returns the message that the tag of a reference points to no build. The message has the
// words of E2B's service, because clients that find these words in an answer try again.
func (ref *Reference) missing() string {
	return fmt.Sprintf("tag '%s' does not exist for template '%s'", clip.Text(ref.tag(), maxMessage), clip.Text(ref.Name, maxMessage))
}

func notFound(ref *Reference) error { return refusef(NotFound, "template '%s' not found", ref) }
