//go:build linux

package room

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Report describes the isolation, the limits and the other promises of this room on this machine.
func (r *Room) Report() engine.Report {
	report := r.report
	report.Notes, report.Hidden = slices.Clone(report.Notes), slices.Clone(report.Hidden)
	report.Promises = maps.Clone(report.Promises)
	return report
}

// promise fills in the promises of this room, after the rest of the report.
func (r *Room) promise() {
	p := engine.Everything()
	p.Lack("this machine's kernel does not write the memory of processes to files", engine.SavedMemory)
	r.runner.lacks(p)
	if r.report.IDs == 1 {
		p.Lack("its root and its user are one id", engine.TwoUsers)
	}
	if r.report.Egress != engine.EgressTransparent {
		p.Lack(r.report.Egress, engine.AllEgress)
	}
	for f, limit := range map[engine.Feature]string{
		engine.MemoryLimit: r.report.Memory, engine.CPULimit: r.report.CPU, engine.ProcessLimit: r.report.Processes, engine.DiskLimit: r.report.Disk,
	} {
		if strings.HasPrefix(limit, "not enforced") {
			p.Lack(limit, f)
		}
	}
	if why := r.noResize(); why != "" {
		p.Lack(why, engine.Resizes)
	}
	r.report.Promises = p
}

func (r *Room) fillReport(notes, hidden []string) {
	r.report = engine.Report{
		Engine:    engine.Room,
		Isolation: r.level,
		IDs:       1,
		Memory:    r.keeper.groups.How("memory"),
		CPU:       r.keeper.groups.How("cpu"),
		Processes: r.keeper.groups.How("pids"),
		Disk:      "size of the tmpfs",
		Notes:     notes,
		Hidden:    hidden,
	}
	memory, processes := r.runner.limitsReport(r.keeper.groups.Why)
	r.report.Memory, r.report.Processes = cmp.Or(r.report.Memory, memory), cmp.Or(r.report.Processes, processes)
	if r.report.CPU == "" {
		r.report.CPU = "not enforced: " + r.keeper.groups.Why["cpu"]
	}
	if how, why := r.keeper.groups.FreezesWith(); how != "" {
		r.report.Pause = how
	} else {
		r.report.Pause = fmt.Sprintf("signals: %v", why)
	}
	if r.keeper.groups.Unbounded != nil {
		r.note(fmt.Sprintf("all sandboxes together may have as many processes as the machine: %v", r.keeper.groups.Unbounded))
	}
	r.runner.describe()
}

// noteNoexec adds a note if the directory of the sandboxes is on a file system mounted noexec.
// Sandboxes without a file system of their own then cannot execute their files.
func (r *Room) noteNoexec() {
	var s unix.Statfs_t
	if err := unix.Statfs(r.keeper.spec.Roots, &s); err != nil || s.Flags&unix.ST_NOEXEC == 0 {
		return
	}
	variables := "TMPDIR or XDG_RUNTIME_DIR"
	if os.Geteuid() == 0 {
		variables = "TMPDIR"
	}
	r.note(fmt.Sprintf("programs and libraries that code writes do not run: %s is on a file system that is mounted noexec; have %s name a directory on another one (with Docker, --tmpfs /tmp:exec)", filepath.Dir(r.keeper.spec.Roots), variables))
}

// noteFall adds the reason why the isolation level is weaker than the level that was tried first.
func (r *Room) noteFall(attempts []engine.Attempt) {
	if len(attempts) == 0 {
		return
	}
	lacks := "no network, volumes or mounts"
	if !r.ids.apart {
		lacks += ", and no user id of their own"
	}
	refused := attempts[0]
	note := fmt.Sprintf("%s, not %s: sandboxes have %s; this machine refuses isolation %q: %v", r.level, refused.Isolation, lacks, refused.Isolation, refused.Err)
	if remedy := remedyOf(attempts, lookAround()); remedy != "" {
		note += "; to mend it: " + remedy
	}
	r.report.IsolationNote = strings.ReplaceAll(note, "\n", "; ") // errors of several causes have lines
	r.report.Notes = slices.Insert(r.report.Notes, 0, r.report.IsolationNote)
}

func (r *Room) note(text string) { r.report.Notes = append(r.report.Notes, text) }
