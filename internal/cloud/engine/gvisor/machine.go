package gvisor

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machineFile is the name of a file in a directory of saved memory. The file describes the machine
// that the memory depends on.
const machineFile = "machine.json"

// machine describes the machine that saved memory depends on. Saved memory contains only those pages
// of programs and libraries that were written. A restore reads all their other pages again, from the
// same files.
type machine struct {
	Runsc    string            // version of runsc
	Kernel   string            // release of the machine's kernel
	Features []string          // features of the processor
	Programs map[string]string // identity of each program, by its path; envd's program has the key "e2bctl"
}

// describe returns a description of this machine, on which memory saved here depends. binary is the
// path of envd's program. After an update, the same path may lead to another file. programs are the
// paths of all other programs.
func describe(runsc, binary string, programs []string) (*machine, error) {
	m := &machine{Runsc: runsc, Programs: map[string]string{}}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	m.Kernel = strings.TrimSpace(string(release))
	if m.Features, err = features(); err != nil {
		return nil, err
	}
	if m.Programs["e2bctl"], err = digest(binary); err != nil {
		return nil, err
	}
	for _, path := range programs {
		info, err := os.Stat(path)
		if err != nil {
			continue // sandboxes do not have it either
		}
		m.Programs[path] = fmt.Sprintf("%d bytes of %s", info.Size(), info.ModTime().UTC().Format("2006-01-02 15:04:05.999999999"))
	}
	return m, nil
}

// features returns the features of the processor, sorted.
func features() ([]string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		if name = strings.TrimSpace(name); name == "flags" || name == "Features" {
			all := strings.Fields(value)
			slices.Sort(all)
			return all, nil
		}
	}
	return nil, errors.New("/proc/cpuinfo has no flags of the processor")
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// check returns an error if memory that was saved on the machine saved cannot be restored on the
// machine here. The error names the differences.
func (saved *machine) check(here *machine) error {
	var differ []string
	if saved.Runsc != here.Runsc {
		differ = append(differ, fmt.Sprintf("it was saved by %s, and this is %s", saved.Runsc, here.Runsc))
	}
	if saved.Kernel != here.Kernel {
		differ = append(differ, fmt.Sprintf("it was saved on the kernel %s, and this is %s", saved.Kernel, here.Kernel))
	}
	missing := slices.DeleteFunc(slices.Clone(saved.Features), func(f string) bool { return slices.Contains(here.Features, f) })
	if len(missing) > 0 {
		const shown = 8
		more := ""
		if len(missing) > shown {
			more = fmt.Sprintf(" and %d more", len(missing)-shown)
		}
		differ = append(differ, "this processor lacks "+strings.Join(missing[:min(len(missing), shown)], ", ")+more)
	}
	for path, was := range saved.Programs {
		if is := here.Programs[path]; is != was {
			differ = append(differ, path+" is another one now")
		}
	}
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return errors.New(strings.Join(differ, "; "))
}

// write writes m to the machineFile in dir, beside the saved memory.
func (m *machine) write(dir string) (err error) {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, machineFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// maxMachine bounds the bytes read from a machineFile.
const maxMachine = 1 << 20

// readMachine reads the machineFile in dir, a directory of saved memory.
func readMachine(dir string) (*machine, error) {
	f, err := os.Open(filepath.Join(dir, machineFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := new(machine)
	err = json.NewDecoder(io.LimitReader(f, maxMachine)).Decode(m)
	return m, err
}
