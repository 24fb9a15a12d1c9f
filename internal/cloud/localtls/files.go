package localtls

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files provides a certificate and its private key from two files. The files are read again when
// they change. Files is safe for concurrent use.
type Files struct {
	cert, key string
	logger    *slog.Logger

	mu   sync.Mutex
	seen [2]os.FileInfo // information about the files that were read last
	pair *tls.Certificate
}

// OpenFiles reads two PEM files: cert contains the certificate followed by its intermediate
// certificates, and key contains its private key.
func OpenFiles(cert, key string, logger *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, logger: logger}
	seen, err := f.stat()
	if err != nil {
		return nil, err
	}
	f.seen = seen
	if f.pair, err = f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Config returns the configuration of a server that uses the certificate of the files.
func (f *Files) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current(), nil },
	}
}

// NotAfter returns the time until which the certificate is valid.
func (f *Files) NotAfter() time.Time { return f.current().Leaf.NotAfter }

// current returns the certificate. If the files have changed and are not valid, current returns the
// previous certificate. This happens, for example, when only one of the files has been replaced
// yet.
func (f *Files) current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, err := f.stat()
	if err == nil && isSame(f.seen[0], seen[0]) && isSame(f.seen[1], seen[1]) {
		return f.pair
	}
	if err == nil {
		var pair *tls.Certificate
		if pair, err = f.read(); err == nil {
			f.seen, f.pair = seen, pair
			f.logger.InfoContext(context.Background(), "the files of TLS have changed", "file", f.cert, "until", pair.Leaf.NotAfter)
			return f.pair
		}
	}
	if f.seen != seen {
		f.logger.ErrorContext(context.Background(), "the files of TLS have changed, but are not valid: the previous certificate is used", "error", err)
	}
	f.seen = seen // each change is reported once
	return f.pair
}

func (f *Files) stat() (seen [2]os.FileInfo, err error) {
	for i, path := range []string{f.cert, f.key} {
		if seen[i], err = os.Stat(path); err != nil {
			return [2]os.FileInfo{}, fmt.Errorf("the files of TLS: %w", err)
		}
	}
	return seen, nil
}

func isSame(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (f *Files) read() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("the files of TLS, %s and %s: %w", f.cert, f.key, err)
	}
	return &pair, nil
}
