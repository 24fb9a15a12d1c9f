package pip

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// Lock pins packages to versions, and to hashes of their files.
type Lock struct {
	Comment  string // the lines at the head of the text, which have no effect
	Packages []Locked
}

// Locked is one package of a [Lock].
type Locked struct {
	Name, Version string
	SHA256        []string // the hashes of the files that may be installed, in hex
	File          string   // the name of the wheel; "": the name is unknown
}

const (
	// maxReport bounds the number of bytes that are read of pip's report. The report contains the
	// whole description of each package.
	maxReport = 64 << 20
	// maxLocked bounds the number of packages in a lock.
	maxLocked = 10_000
)

var (
	lockedName    = lazyregexp.New(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	lockedPackage = lazyregexp.New(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?: *\[[A-Za-z0-9._, -]*\])? *== *([A-Za-z0-9_.+!-]+)$`)
	lockedHash    = lazyregexp.New(`^--hash=([a-z0-9]+):(\S+)$`)
	lockedSum     = lazyregexp.New(`^[0-9a-f]{64}$`)
)

// ReadReport reads a report of "pip install --report". The report comes from the sandbox. from
// contains the addresses of the files, in the order of the packages in lock.
func ReadReport(r io.Reader) (lock *Lock, from []string, err error) {
	var report struct {
		Install     []reported
		Environment struct {
			Implementation string `json:"platform_python_implementation"`
			Python         string `json:"python_version"`
			System         string `json:"sys_platform"`
			Machine        string `json:"platform_machine"`
		}
	}
	if err := json.NewDecoder(io.LimitReader(r, maxReport)).Decode(&report); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(report.Install, func(a, b reported) int {
		return cmp.Compare(Normalize(a.Metadata.Name), Normalize(b.Metadata.Name))
	})
	e := report.Environment
	lock = &Lock{Comment: fmt.Sprintf("For %s %s on %s %s.\npip install --no-deps --require-hashes -r this file", e.Implementation, e.Python, e.System, e.Machine), Packages: []Locked{}}
	for _, one := range report.Install {
		locked := Locked{Name: one.Metadata.Name, Version: one.Metadata.Version, SHA256: []string{one.Download.Archive.Hashes["sha256"]}}
		if u, err := url.Parse(one.Download.URL); err == nil && locked.isWheel(path.Base(u.Path)) {
			locked.File = path.Base(u.Path)
		}
		lock.Packages, from = append(lock.Packages, locked), append(from, one.Download.URL)
	}
	return lock, from, lock.Check()
}

// reported is a package of a report.
type reported struct {
	Download struct {
		URL     string
		Archive struct {
			Hashes map[string]string
		} `json:"archive_info"`
	} `json:"download_info"`
	Metadata struct{ Name, Version string }
}

// isWheel reports whether file is the name of a wheel of the locked package, in the locked version.
func (l Locked) isWheel(file string) bool {
	match := wheelName().FindStringSubmatch(file)
	return match != nil && Normalize(match[1]) == Normalize(l.Name) && Normalize(match[2]) == Normalize(l.Version)
}

// Check returns an error if the lock must not be passed to pip. Such a check is necessary because a
// user may have edited the lock, or the caller may have built it.
func (l *Lock) Check() error {
	if l == nil {
		return &RefusedError{Reason: "there is no lock"}
	}
	if len(l.Packages) > maxLocked {
		return &RefusedError{Reason: fmt.Sprintf("the lock has more than %d packages", maxLocked)}
	}
	names := map[string]bool{}
	for _, one := range l.Packages {
		pin := one.Name + "==" + one.Version
		refuse := func(reason string) error { return &RefusedError{Requirement: pin, Reason: "in the lock: " + reason} }
		name := Normalize(one.Name)
		switch {
		case len(pin) > maxRequirement || !lockedName().MatchString(one.Name):
			return refuse("not the name of a package")
		case versionForm().FindString(one.Version) == "":
			return refuse("not a version")
		case names[name]:
			return refuse("it is listed twice")
		case len(one.SHA256) == 0:
			return refuse("it has no hash")
		case one.File != "" && !one.isWheel(one.File):
			return refuse(fmt.Sprintf("%q is not the name of a wheel of this package", clip.Text(one.File, 128)))
		}
		for _, sum := range one.SHA256 {
			if !IsSHA256(sum) {
				return refuse("a hash is not 64 hexadecimal digits, as SHA-256 has")
			}
		}
		names[name] = true
	}
	return nil
}

// Marshal returns the lock as a requirements file.
func (l *Lock) Marshal() ([]byte, error) {
	if err := l.Check(); err != nil {
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

// Unmarshal reads a file that Marshal wrote. The file may have been edited, or another program may
// have written it in the same form. If Unmarshal cannot accept a line, the error is a
// [*RefusedError] with the number of the line.
func (l *Lock) Unmarshal(text []byte) error {
	read := Lock{Packages: []Locked{}}
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
			return &RefusedError{Requirement: strings.TrimSpace(pin), Reason: fmt.Sprintf("line %d of the lock: %s", start, err)}
		}
		if locked != nil {
			read.Packages = append(read.Packages, *locked)
		}
		pin = ""
	}
	if pin != "" {
		return &RefusedError{Requirement: strings.TrimSpace(pin), Reason: fmt.Sprintf("line %d of the lock continues on the next line, but is the last", start)}
	}
	read.Comment = strings.Join(head, "\n")
	if err := read.Check(); err != nil {
		return err
	}
	*l = read
	return nil
}

// IsSHA256 reports whether s is a SHA-256 in the form used in locks.
func IsSHA256(s string) bool { return lockedSum().MatchString(s) }

// parseLocked reads a line of a lock. For an empty line or a comment it returns nil and no
// error.
func parseLocked(line string) (*Locked, error) {
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
	locked := &Locked{Name: match[1], Version: match[2]}
	for _, field := range fields[hashes:] {
		hash := lockedHash().FindStringSubmatch(field)
		switch {
		case hash == nil:
			return nil, fmt.Errorf("%q is not of the form --hash=sha256:…", clip.Text(field, 128))
		case hash[1] != "sha256":
			return nil, fmt.Errorf("the hash is of the kind %s, but SHA-256 is needed", clip.Text(hash[1], 16))
		}
		if _, err := hex.DecodeString(hash[2]); err != nil || len(hash[2]) != 64 {
			return nil, fmt.Errorf("the hash of %s is not 64 hexadecimal digits", locked.Name)
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

// cutComment splits a line into the part before the comment, and the comment.
func cutComment(line string) (rest, comment string) {
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") {
		return "", ""
	}
	rest, comment, _ = strings.Cut(line, " #")
	return rest, strings.TrimSpace(comment)
}
