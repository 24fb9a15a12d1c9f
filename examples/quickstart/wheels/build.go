// Command wheels builds the wheel that the quickstart installs if the package
// index cannot be reached. The result depends only on the source.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
)

const (
	wheel = "quickstart_numbers-1.0-py3-none-any.whl"
	info  = "quickstart_numbers-1.0.dist-info/"
)

//go:embed quickstart_numbers.py
var module string

func main() {
	content, err := build()
	if err == nil {
		err = os.WriteFile(wheel, content, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wheels:", err)
		os.Exit(1)
	}
}

// build returns the wheel: the module, and the metadata that the format requires.
// Files are stored without compression, so that the result does not depend on the
// version of a compressor.
func build() ([]byte, error) {
	files := []struct{ name, content string }{
		{"quickstart_numbers.py", module},
		{info + "METADATA", "Metadata-Version: 2.1\nName: quickstart-numbers\nVersion: 1.0\nSummary: Numbers for people\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: quickstart\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var record bytes.Buffer
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	add := func(name, content string) error {
		entry, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			return err
		}
		_, err = entry.Write([]byte(content))
		return err
	}
	for _, file := range files {
		sum := sha256.Sum256([]byte(file.content))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", file.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(file.content))
		if err := add(file.name, file.content); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	if err := add(info+"RECORD", record.String()); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
