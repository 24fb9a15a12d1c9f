package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// fakeSnapshot is a template that was made of a sandbox.
type fakeSnapshot struct {
	ID     string   `json:"snapshotID"`
	Names  []string `json:"names"`
	Memory *bool    `json:"memory,omitempty"`
	source string
}

// handleTemplates serves forks, snapshots and one template, "tbase" with the name
// "base" and the build "b1".
func (s *service) handleTemplates(mux *http.ServeMux) {
	mux.HandleFunc("POST /sandboxes/{id}/fork", s.sandbox((*service).fork))
	mux.HandleFunc("POST /sandboxes/{id}/snapshots", s.sandbox((*service).snapshot))
	mux.HandleFunc("GET /snapshots", s.listSnapshots)
	mux.HandleFunc("GET /v2/templates", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "[%s]", s.template()) })
	mux.HandleFunc("GET /templates/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r.PathValue("id"), r.PathValue("id") == "tbase", s.template)
	})
	mux.HandleFunc("GET /templates/{id}/{rest}", func(w http.ResponseWriter, r *http.Request) {
		if name := r.PathValue("rest"); r.PathValue("id") == "aliases" {
			s.answer(w, name, name == "base", func() string { return `{"templateID":"tbase","public":false}` })
			return
		}
		s.answer(w, r.PathValue("id"), isBase(r), s.listTags)
	})
	mux.HandleFunc("PATCH /v2/templates/{id}", s.publish)
	mux.HandleFunc("DELETE /templates/{id}", s.deleteTemplate)
	mux.HandleFunc("POST /templates/tags", s.tags)
	mux.HandleFunc("DELETE /templates/tags", s.tags)
}

func isBase(r *http.Request) bool { return r.PathValue("id") == "base" || r.PathValue("id") == "tbase" }

// answer answers about the known template.
func (s *service) answer(w http.ResponseWriter, name string, known bool, text func() string) {
	if !known {
		problem(w, http.StatusNotFound, fmt.Sprintf("template '%s' not found", name))
		return
	}
	_, _ = io.WriteString(w, text())
}

func (s *service) template() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf(`{"templateID":"tbase","buildID":"b1","cpuCount":2,"memoryMB":512,"diskSizeMB":1024,"public":%v,"aliases":["base"],
		"names":["local/base"],"createdAt":"2026-11-21T09:00:00Z","updatedAt":"2026-11-21T10:00:00Z","spawnCount":3,"buildCount":1,
		"envdVersion":"0.6.13","engine":"docker","buildStatus":"ready","builds":[{"buildID":"b1","status":"ready","cpuCount":2,"memoryMB":512,
		"createdAt":"2026-11-21T10:00:00Z","finishedAt":"2026-11-21T10:01:00Z"}]}`, s.public)
}

func (s *service) publish(w http.ResponseWriter, r *http.Request) {
	var request struct{ Public bool }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.answer(w, r.PathValue("id"), isBase(r), func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.public = request.Public
		return `{"names":["local/base"]}`
	})
}

func (s *service) tags(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Target, Name string
		Tags         []string
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	name, _, _ := strings.Cut(request.Target+request.Name, ":")
	switch {
	case name != "base":
		problem(w, http.StatusNotFound, fmt.Sprintf("template '%s' not found", name))
	case r.Method == http.MethodPost:
		s.mu.Lock()
		s.named = append(s.named, request.Tags...)
		s.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"tags": request.Tags, "buildID": "b1"})
	case slices.Contains(request.Tags, "default"):
		problem(w, http.StatusBadRequest, "the tag 'default' cannot be removed")
	default:
		s.mu.Lock()
		s.named = slices.DeleteFunc(s.named, func(tag string) bool { return slices.Contains(request.Tags, tag) })
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *service) listTags() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tags []string
	for _, tag := range append([]string{"default"}, s.named...) {
		tags = append(tags, fmt.Sprintf(`{"tag":%q,"buildID":"b1","createdAt":"2026-11-21T10:00:00Z"}`, tag))
	}
	return "[" + strings.Join(tags, ",") + "]"
}

// fork makes at most two copies. Copies with the mode "files" have no memory.
func (s *service) fork(w http.ResponseWriter, r *http.Request, sb *fakeSandbox) {
	var request struct{ Timeout, Count int }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sb.State == "paused" {
		problem(w, http.StatusConflict, "it is paused: resume it first")
		return
	}
	var entries []map[string]any
	for i := range request.Count {
		if i >= 2 || sb.Alias == "alone" {
			entries = append(entries, map[string]any{"error": map[string]any{"code": 429, "message": "no more sandboxes"}})
			continue
		}
		s.created++
		made := *sb
		made.ID = fmt.Sprintf("i%020d", s.created)
		made.EndAt = made.StartedAt.Add(time.Duration(request.Timeout) * time.Second)
		s.sandboxes[made.ID] = &made
		entry := map[string]any{"sandbox": &made}
		if sb.Alias == "files" {
			entry["memory"] = false
		}
		entries = append(entries, entry)
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(entries)
}

func (s *service) snapshot(w http.ResponseWriter, r *http.Request, sb *fakeSandbox) {
	var request struct {
		Name   string
		Memory *bool
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	made := fakeSnapshot{ID: fmt.Sprintf("s%d:default", len(s.snapshots)+1), Names: []string{}, source: sb.ID}
	if name, tag, tagged := strings.Cut(request.Name, ":"); name != "" {
		if !tagged {
			tag = "default"
		}
		made.ID, made.Names = "local/"+name+":"+tag, []string{"local/" + name}
	}
	switch {
	case sb.State == "paused":
		problem(w, http.StatusNotFound, "no running sandbox")
		return
	case sb.Alias == "files" && request.Memory != nil && *request.Memory:
		problem(w, http.StatusBadRequest, "memory cannot be kept")
		return
	case sb.Alias == "files" || request.Memory != nil:
		made.Memory = new(sb.Alias != "files" && *request.Memory)
	}
	s.snapshots = append(s.snapshots, made)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(made)
}

func (s *service) listSnapshots(w http.ResponseWriter, r *http.Request) {
	source, name := r.URL.Query().Get("sandboxID"), r.URL.Query().Get("name")
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []fakeSnapshot{}
	for _, snapshot := range s.snapshots {
		if (source == "" || source == snapshot.source) && strings.Contains(snapshot.ID, name) {
			found = append(found, snapshot)
		}
	}
	_ = json.NewEncoder(w).Encode(found)
}

func (s *service) deleteTemplate(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(r.PathValue("id"), ":")
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.snapshots)
	s.snapshots = slices.DeleteFunc(s.snapshots, func(snapshot fakeSnapshot) bool { return strings.HasPrefix(snapshot.ID, name+":") })
	switch {
	case name == "base":
		problem(w, http.StatusBadRequest, "sandboxes use it")
	case len(s.snapshots) == before:
		problem(w, http.StatusNotFound, fmt.Sprintf("template '%s' not found", name))
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
