package code

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/sandbox"
)

// imageSaver writes the pictures in the results of code to files, and prints the paths of the
// files.
type imageSaver struct {
	dir    string // the directory for pictures; "": no pictures are written
	tell   io.Writer
	before int // the number of earlier results, which is added to the numbers in file names
}

func (s imageSaver) save(results []sandbox.Result) error {
	if s.dir == "" {
		return nil
	}
	var errs []error
	for i, r := range results {
		for _, image := range imagesOf(r) {
			if err := s.write(fmt.Sprintf("image-%d.%s", s.before+i+1, image.extension), image.content); err != nil {
				errs = append(errs, fmt.Errorf("saving an image: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

func (s imageSaver) write(name string, content []byte) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(s.tell, "saved %s\n", path)
	return nil
}

type image struct {
	extension string
	content   []byte
}

func imagesOf(r sandbox.Result) []image {
	var images []image
	if content := r.PNG(); content != nil {
		images = append(images, image{"png", content})
	}
	if content := r.JPEG(); content != nil {
		images = append(images, image{"jpg", content})
	}
	if content := r.PDF(); content != nil {
		images = append(images, image{"pdf", content})
	}
	if text := r.SVG(); text != "" {
		images = append(images, image{"svg", []byte(text)})
	}
	return images
}
