package control

import "net/http"

// resize changes the resources of a running sandbox. A field that is 0 or missing does not change.
func (s *Service) resize(w http.ResponseWriter, r *http.Request) error {
	var q resourcesRequest
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	sb, err := s.sandboxes.Get(id)
	if err != nil {
		return err
	}
	if q == (resourcesRequest{}) {
		return invalid("one of cpuCount, memoryBytes and diskBytes must be greater than 0")
	}
	if err := s.checkResources(r.Context(), s.engineOf(sb.Template.Engine), q); err != nil {
		return err
	}
	if err := s.sandboxes.Resize(r.Context(), id, q.asked()); err != nil {
		return err
	}
	noContent(w)
	return nil
}
