package control

import (
	"context"
	"net/http"
	"time"
)

// takenAnswer is the space that objects of one kind take.
type takenAnswer struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// space answers with the space of layers, cached steps of builds and archives. The service has
// no such call.
func (s *Service) space(w http.ResponseWriter, r *http.Request) error {
	space, err := s.builds.Space(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Bytes   int64       `json:"bytes"`
		Cap     int64       `json:"cap"`
		Layers  takenAnswer `json:"layers"`
		Cache   takenAnswer `json:"cache"`
		Uploads takenAnswer `json:"uploads"`
	}{space.Bytes, space.Cap, takenAnswer(space.Layers), takenAnswer(space.Cache), takenAnswer(space.Uploads)})
	return nil
}

// emptyCache removes cached steps, and archives that no build needs.
func (s *Service) emptyCache(w http.ResponseWriter, r *http.Request) error {
	if err := s.builds.EmptyCache(); err != nil {
		return err
	}
	s.deleted(w, r)
	return nil
}

// freeLimit bounds the time for which a deletion waits until the space is free. The object is
// already deleted, so its space is freed even after that time. A client that closes its handle of a
// paused sandbox waits 10 seconds for the answer. If the answer came later, the client would report
// that the deletion failed.
const freeLimit = 5 * time.Second

// deleted answers a deletion once the space is free, or after freeLimit.
func (s *Service) deleted(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), freeLimit)
	defer cancel()
	s.freed(ctx)
	noContent(w)
}
