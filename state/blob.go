package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"strconv"
)

// blobFrom is the minimum size at which bytes are stored as a blob outside the document. The
// document then contains the hash of these bytes.
const blobFrom = 64 << 10

const (
	blobStart = `{"$":"blob","sha256":"`
	blobSize  = `","size":`
)

// Hash identifies content by its SHA-256.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// compareHash compares hashes, for sorting.
func compareHash(a, b Hash) int { return bytes.Compare(a[:], b[:]) }

// Blobs contains the large byte strings of values, by the hash of their content.
type Blobs map[Hash][]byte

// All iterates over the blobs in the order of their hashes.
func (b Blobs) All() iter.Seq2[Hash, []byte] {
	return func(yield func(Hash, []byte) bool) {
		for _, hash := range slices.SortedFunc(maps.Keys(b), compareHash) {
			if !yield(hash, b[hash]) {
				return
			}
		}
	}
}

func (b Blobs) size() int {
	n := 0
	for _, data := range b {
		n += len(data)
	}
	return n
}

// leaf writes bytes as base64 or as the name of a blob. The encoder may keep a reference to data.
func (e *encoder) leaf(data []byte) {
	if !e.detached || len(data) < blobFrom {
		e.buf = appendBase64(e.buf, data)
		return
	}
	hash := sha256.Sum256(data)
	if e.blobs == nil {
		e.blobs = Blobs{}
	}
	e.blobs[hash] = data
	e.beside += len(data)
	e.text(blobStart)
	e.buf = hex.AppendEncode(e.buf, hash[:])
	e.text(blobSize)
	e.buf = strconv.AppendInt(e.buf, int64(len(data)), 10)
	e.text(`}`)
}

// inline returns a document with its blobs inserted.
func inline(doc []byte, blobs Blobs) []byte {
	if len(blobs) == 0 {
		return doc
	}
	out := make([]byte, 0, len(doc)+base64.StdEncoding.EncodedLen(blobs.size())+4*len(blobs))
	for before, hash := range split(doc) {
		out = append(out, before...)
		if hash != nil {
			out = appendBase64(out, blobs[*hash])
		}
	}
	return out
}

// named returns the blobs that a checked document names.
func named(doc []byte, blobs Blobs) Blobs {
	if len(blobs) == 0 {
		return nil
	}
	var found Blobs
	for _, hash := range split(doc) {
		if hash == nil {
			continue
		}
		if found == nil {
			found = Blobs{}
		}
		found[*hash] = blobs[*hash]
	}
	return found
}

// split cuts a checked document at the blobs that it names. It yields each piece with the hash of
// the blob that follows it, and the last piece with nil. The text at the beginning of a blob's name
// cannot occur elsewhere in a document, because quotes in a string are escaped, and a dict with the
// key "$" is written as pairs.
func split(doc []byte) iter.Seq2[[]byte, *Hash] {
	return func(yield func([]byte, *Hash) bool) {
		for {
			before, rest, found := bytes.Cut(doc, []byte(blobStart))
			if !found {
				yield(doc, nil)
				return
			}
			var hash Hash
			_, _ = hex.Decode(hash[:], rest[:2*len(hash)]) // checked with the document
			if !yield(before, &hash) {
				return
			}
			_, doc, _ = bytes.Cut(rest, []byte(`}`))
		}
	}
}

// blob reads the name of a blob and returns its bytes.
func (s *scanner) blob() ([]byte, error) {
	text, err := s.plain()
	if err != nil {
		return nil, err
	}
	var hash Hash
	if len(text) != hex.EncodedLen(len(hash)) {
		return nil, s.fail("malformed hash of a blob")
	}
	if _, err := hex.Decode(hash[:], []byte(text)); err != nil || hash.String() != text { // upper case is another spelling
		return nil, s.fail("malformed hash of a blob")
	}
	if err := s.literal(blobSize[1:]); err != nil {
		return nil, err
	}
	size, err := s.integer()
	if err != nil {
		return nil, err
	}
	data, ok := s.blobs[hash]
	if !ok {
		return nil, s.fail("the blob %s is missing", hash)
	}
	if int64(len(data)) != size || len(data) < blobFrom {
		return nil, s.fail("a blob of %d bytes, where the document says %d", len(data), size)
	}
	if !s.check {
		data = bytes.Clone(data)
	}
	return data, s.literal("}")
}
