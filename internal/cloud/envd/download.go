//go:build linux

package envd

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileTarget is the user and the path in a request for a file.
type fileTarget struct {
	query  url.Values
	user   *User
	length int64 // length of an upload, if it is known
}

// fileTarget does the checks that are common to uploads and downloads of a file. If a check fails, it
// answers the request with the error, and returns false.
func (s *Server) fileTarget(w http.ResponseWriter, r *http.Request, operation string) (*fileTarget, bool) {
	query := r.URL.Query()
	for _, name := range []string{"path", "username", "signature", "signature_expiration"} {
		if len(query[name]) > 1 {
			http.Error(w, fmt.Sprintf("Invalid format for parameter %s: multiple values for single value parameter '%s'", name, name), http.StatusBadRequest)
			return nil, false
		}
	}
	if expiration := query.Get("signature_expiration"); query.Has("signature_expiration") {
		if _, err := strconv.ParseInt(expiration, 10, 64); err != nil {
			http.Error(w, "Invalid format for parameter signature_expiration: not an integer", http.StatusBadRequest)
			return nil, false
		}
	}
	if err := s.authorizeFile(r, query, operation); err != nil {
		writeError(w, http.StatusUnauthorized, err.Error())
		return nil, false
	}
	user, err := s.users.lookup(query.Get("username"))
	if err != nil {
		writeError(w, http.StatusUnauthorized, err.Error())
		return nil, false
	}
	return &fileTarget{query: query, user: user}, true
}

// download answers GET /files.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	target, ok := s.fileTarget(w, r, signedRead)
	if !ok {
		return
	}
	path, err := s.paths.resolve(target.query.Get("path"), target.user)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	info, err := os.Stat(path)
	switch {
	case isMissing(err):
		writeError(w, http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", path))
		return
	case err != nil:
		writeError(w, http.StatusInternalServerError, fmt.Sprintf("error checking file '%s': %v", path, err))
		return
	case info.IsDir():
		writeError(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path))
		return
	case !ends(info):
		writeError(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is not a regular file", path))
		return
	}
	coding, err := downloadCoding(r.Header, info.Size())
	if err != nil {
		writeError(w, http.StatusNotAcceptable, fmt.Sprintf("error parsing Accept-Encoding: %v", err))
		return
	}
	f, err := openRegular(path)
	if err != nil {
		writeError(w, http.StatusInternalServerError, fmt.Sprintf("error opening file '%s': %v", path, err))
		return
	}
	defer f.Close()

	header := w.Header()
	header.Set("Vary", "Accept-Encoding")
	header.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(path)}))
	if coding == gzipCoding {
		sendCompressed(w, f)
		return
	}
	if info.Size() == 0 && sendSizeless(w, f) {
		return
	}
	http.ServeContent(w, r, path, info.ModTime(), f)
}

// ends reports whether reading a file comes to an end. It returns true for regular files and
// for the null device, which is empty. Reading a pipe or another device may never end.
func ends(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	isNull := ok && info.Mode()&fs.ModeCharDevice != 0 && stat.Rdev == unix.Mkdev(1, 3)
	return info.Mode().IsRegular() || isNull
}

// openRegular opens a file that [ends] for reading. A program may have replaced the file by a
// pipe, so that a plain open would never return, or by a terminal.
func openRegular(path string) (*os.File, error) {
	f, err := openPatiently(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !ends(info) {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// maxCompressed is the size of the largest file that is compressed for a client that accepts gzip, but
// does not prefer it to identity. Most libraries accept gzip without being asked, and compression takes
// longer than a connection on one machine.
const maxCompressed = 1 << 20

// downloadCoding returns the coding of a download. It is identity for range and conditional
// requests, because both refer to the bytes of the file.
func downloadCoding(header http.Header, size int64) (string, error) {
	accepted := parseAcceptEncoding(header.Get("Accept-Encoding"))
	for _, name := range []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range"} {
		switch {
		case header.Get(name) == "":
		case accepted.refusesIdentity():
			return "", errNotAcceptable
		default:
			return identity, nil
		}
	}
	if size > maxCompressed && !accepted.ranksIdentity() {
		return identity, nil
	}
	return accepted.coding()
}

func sendCompressed(w http.ResponseWriter, f *os.File) {
	kind := mime.TypeByExtension(filepath.Ext(f.Name()))
	if kind == "" {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Encoding", gzipCoding)
	// The data does not leave this machine, so speed matters more than size.
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return
	}
	if _, err := io.Copy(z, f); err != nil {
		panic(http.ErrAbortHandler) // the only remaining way to show that the answer is incomplete
	}
	_ = z.Close() // fails if the client has gone
}

// sendSizeless sends a file that the kernel generates while it is read, such as a file in
// /proc, whose size is zero. It returns false if the kernel does not generate this file.
func sendSizeless(w http.ResponseWriter, f *os.File) bool {
	head := make([]byte, 512)
	n, err := f.Read(head)
	if n == 0 || err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	w.Header().Set("Content-Type", http.DetectContentType(head[:n]))
	if _, err := io.Copy(w, io.MultiReader(bytes.NewReader(head[:n]), f)); err != nil {
		panic(http.ErrAbortHandler)
	}
	return true
}
