package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// Lock pins packages to versions and to the contents of their files, so that
// [Packages.InstallLock] installs the same wherever it is used. Its text is a
// file of pip's requirements with hashes, to be kept beside a program and read by
// people; what pip-compile and uv write can be read as well, when it has no
// markers.
type Lock struct {
	// Comment are the lines at the head of the text: what the lock is for. They
	// bind nobody.
	Comment string
	// Packages are those that pip installs, without their dependencies.
	Packages []LockedPackage
}

// LockedPackage is one package of a [Lock].
type LockedPackage struct {
	Name, Version string
	// SHA256 are the hashes, in hex, of the files that may be installed.
	SHA256 []string
	// File is the name of the wheel, when it is one that [Packages.Lock] found.
	// Without it the wheel is not kept on this machine.
	File string
}

const (
	// maxReport bounds what is read of pip's report. It has the whole description
	// of each package.
	maxReport = 64 << 20
	// maxLocked bounds the packages of a lock.
	maxLocked = 10_000
)

var (
	lockedName    = lazyregexp.New(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	lockedPackage = lazyregexp.New(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?: *\[[A-Za-z0-9._, -]*\])? *== *([A-Za-z0-9_.+!-]+)$`)
	lockedHash    = lazyregexp.New(`^--hash=([a-z0-9]+):(\S+)$`)
	lockedSum     = lazyregexp.New(`^[0-9a-f]{64}$`)
)

// Lock finds out which files pip would install for requirements (not paths of
// wheels), and installs nothing. The lock has what the sandbox does not have yet:
// it is for sandboxes of the same template. Make it in one that nobody else's
// code has run in, for it is the sandbox that says what the hashes are. pip 22.2
// is needed.
func (p *Packages) Lock(ctx context.Context, requirements ...string) (*Lock, error) {
	parsed, err := parseRequirements(requirements)
	if err != nil {
		return nil, err
	}
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	pip, err := p.pip(ctx, requirements)
	if err != nil {
		return nil, err
	}
	defer pip.close(ctx)
	report := pip.path("report.json")
	if err := pip.write(ctx, report, strings.NewReader("")); err != nil {
		return nil, err
	}
	arguments := []string{"install", "--dry-run", "--prefer-binary", "--report", report}
	for _, r := range parsed {
		if r.wheel {
			return nil, &RequirementError{r.text, "a lock is of what an index has: give a name"}
		}
		arguments = append(arguments, r.text)
	}
	if err := pip.run(ctx, arguments...); err != nil {
		return nil, err
	}
	f, err := p.sb.Files.Open(ctx, report, &FileParams{User: "root"})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lock, err := readReport(io.LimitReader(f, maxReport))
	if err != nil {
		return nil, p.sb.failed(ctx, "lock packages: read pip's report", err)
	}
	return lock, nil
}

// readReport reads a report of pip, which comes from the sandbox.
func readReport(r io.Reader) (*Lock, error) {
	var report struct {
		Install []struct {
			Download struct {
				URL     string
				Archive struct {
					Hashes map[string]string
				} `json:"archive_info"`
			} `json:"download_info"`
			Metadata struct{ Name, Version string }
		}
		Environment struct {
			Implementation string `json:"platform_python_implementation"`
			Python         string `json:"python_version"`
			System         string `json:"sys_platform"`
			Machine        string `json:"platform_machine"`
		}
	}
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		return nil, err
	}
	e := report.Environment
	lock := &Lock{Comment: fmt.Sprintf("For %s %s on %s %s.\npip install --no-deps --require-hashes -r this file", e.Implementation, e.Python, e.System, e.Machine), Packages: []LockedPackage{}}
	for _, one := range report.Install {
		locked := LockedPackage{Name: one.Metadata.Name, Version: one.Metadata.Version, SHA256: []string{one.Download.Archive.Hashes["sha256"]}}
		if u, err := url.Parse(one.Download.URL); err == nil && locked.isWheel(path.Base(u.Path)) {
			locked.File = path.Base(u.Path)
		}
		lock.Packages = append(lock.Packages, locked)
	}
	slices.SortFunc(lock.Packages, func(a, b LockedPackage) int { return cmp.Compare(normalized(a.Name), normalized(b.Name)) })
	return lock, lock.check()
}

// isWheel tells whether a file has the name of a wheel of this version.
func (l LockedPackage) isWheel(file string) bool {
	match := wheelName().FindStringSubmatch(file)
	return match != nil && normalized(match[1]) == normalized(l.Name) && normalized(match[2]) == normalized(l.Version)
}

// check refuses what pip must not be given. A lock may have been edited, or put
// together by the caller.
func (l *Lock) check() error {
	if l == nil {
		return &RequirementError{"", "there is no lock"}
	}
	if len(l.Packages) > maxLocked {
		return &RequirementError{"", fmt.Sprintf("the lock has more than %d packages", maxLocked)}
	}
	names := map[string]bool{}
	for _, one := range l.Packages {
		pin := one.Name + "==" + one.Version
		refuse := func(reason string) error { return &RequirementError{pin, "in the lock: " + reason} }
		name := normalized(one.Name)
		switch {
		case len(pin) > maxRequirement || !lockedName().MatchString(one.Name):
			return refuse("not the name of a package")
		case versionForm().FindString(one.Version) == "":
			return refuse("not a version")
		case names[name]:
			return refuse("it is there twice")
		case len(one.SHA256) == 0:
			return refuse("it has no hash")
		case one.File != "" && !one.isWheel(one.File):
			return refuse(fmt.Sprintf("%q is not the name of a wheel of it", shorten(one.File, 128)))
		}
		for _, sum := range one.SHA256 {
			if !lockedSum().MatchString(sum) {
				return refuse("a hash is not 64 digits of hex, as SHA-256 has")
			}
		}
		names[name] = true
	}
	return nil
}

// MarshalText writes the lock as a file of requirements.
func (l *Lock) MarshalText() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if l.Comment != "" {
		for line := range strings.SplitSeq(l.Comment, "\n") {
			text.WriteString(strings.TrimRight("# "+line, "\r \t") + "\n")
		}
	}
	for _, one := range l.Packages {
		fmt.Fprintf(&text, "%s==%s", one.Name, one.Version)
		for _, sum := range one.SHA256 {
			fmt.Fprintf(&text, " \\\n    --hash=sha256:%s", sum)
		}
		if one.File != "" {
			fmt.Fprintf(&text, "  # %s", one.File)
		}
		text.WriteByte('\n')
	}
	return text.Bytes(), nil
}

// UnmarshalText reads what MarshalText wrote, edited or not, and files of the
// same form by other programs. What it cannot take is a [*RequirementError] with
// the number of the line.
func (l *Lock) UnmarshalText(text []byte) error {
	read := Lock{Packages: []LockedPackage{}}
	var head []string
	pin, start := "", 0
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimRight(line, "\r \t")
		if comment, ok := strings.CutPrefix(line, "#"); ok && len(head) == i {
			head = append(head, strings.TrimPrefix(comment, " "))
		}
		if pin == "" {
			start = i + 1
		}
		if rest, continued := strings.CutSuffix(line, `\`); continued {
			pin += rest + " "
			continue
		}
		pin += line
		locked, err := parseLocked(pin)
		if err != nil {
			return &RequirementError{strings.TrimSpace(pin), fmt.Sprintf("line %d of the lock: %s", start, err)}
		}
		if locked != nil {
			read.Packages = append(read.Packages, *locked)
		}
		pin = ""
	}
	if pin != "" {
		return &RequirementError{strings.TrimSpace(pin), fmt.Sprintf("line %d of the lock goes on where the lock ends", start)}
	}
	read.Comment = strings.Join(head, "\n")
	if err := read.check(); err != nil {
		return err
	}
	*l = read
	return nil
}

// parseLocked reads a line; nil without error is one that says nothing.
func parseLocked(line string) (*LockedPackage, error) {
	line, comment := cutComment(line)
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return nil, nil
	}
	hashes := slices.IndexFunc(fields, func(field string) bool { return strings.HasPrefix(field, "-") })
	if hashes < 0 {
		hashes = len(fields)
	}
	pin := strings.Join(fields[:hashes], " ")
	switch {
	case pin == "":
		return nil, fmt.Errorf("options of pip do not belong in a lock")
	case strings.Contains(pin, ";"):
		return nil, fmt.Errorf("a lock has no markers: it is for one kind of Python")
	}
	match := lockedPackage().FindStringSubmatch(pin)
	if match == nil {
		return nil, fmt.Errorf("not of the form name==version --hash=sha256:…")
	}
	locked := &LockedPackage{Name: match[1], Version: match[2]}
	for _, field := range fields[hashes:] {
		hash := lockedHash().FindStringSubmatch(field)
		switch {
		case hash == nil:
			return nil, fmt.Errorf("%q is not of the form --hash=sha256:…", shorten(field, 128))
		case hash[1] != "sha256":
			return nil, fmt.Errorf("the hash is one of %s: SHA-256 is needed", shorten(hash[1], 16))
		}
		if _, err := hex.DecodeString(hash[2]); err != nil || len(hash[2]) != 64 {
			return nil, fmt.Errorf("the hash of %s is not 64 digits of hex", locked.Name)
		}
		locked.SHA256 = append(locked.SHA256, strings.ToLower(hash[2]))
	}
	if len(locked.SHA256) == 0 {
		return nil, fmt.Errorf("%s has no hash", locked.Name)
	}
	if locked.isWheel(comment) {
		locked.File = comment
	}
	return locked, nil
}

// cutComment gives a line without its comment, and that.
func cutComment(line string) (rest, comment string) {
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") {
		return "", ""
	}
	rest, comment, _ = strings.Cut(line, " #")
	return rest, strings.TrimSpace(comment)
}
