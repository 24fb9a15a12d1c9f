package control

import "net/http"

// takenAnswer is what things of one kind take.
type takenAnswer struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// space answers with what layers, cached steps of builds and archives take, which the
// service does not tell.
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

// emptyCache removes cached steps and archives that no build needs.
func (s *Service) emptyCache(w http.ResponseWriter, _ *http.Request) error {
	if err := s.builds.EmptyCache(); err != nil {
		return err
	}
	noContent(w)
	return nil
}
