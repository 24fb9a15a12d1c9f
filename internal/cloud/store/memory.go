package store

// memory keeps the records of a temporary store. They are lost when the process ends.
type memory map[Table]map[string][]byte

func (m memory) get(table Table, id string) ([]byte, error) { return m[table][id], nil }

func (m memory) put(table Table, id string, entry []byte) error {
	if m[table] == nil {
		m[table] = map[string][]byte{}
	}
	m[table][id] = entry
	return nil
}

func (m memory) note(table Table, id string, entry []byte) error { return m.put(table, id, entry) }

func (m memory) delete(table Table, id string) error {
	delete(m[table], id)
	return nil
}

func (m memory) each(table Table, visit func(id string, entry []byte)) error {
	for id, entry := range m[table] {
		visit(id, entry)
	}
	return nil
}

func (m memory) close() error { return nil }
