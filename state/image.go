package state

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"
	"reflect"
)

// Image is a PIL Image.
type Image struct {
	// Mode is PIL's mode: "RGB", "RGBA", "L", "P", "CMYK".
	Mode          string
	Width, Height int
	// PNG is the image as a PNG file, for the modes that PNG supports. For other modes Raw contains
	// the pixels in the form that PIL's tobytes returns.
	PNG, Raw []byte
}

type imagePayload struct {
	Mode   string `py:"mode"`
	Width  int    `py:"width"`
	Height int    `py:"height"`
	PNG    []byte `py:"png,omitempty"`
	Raw    []byte `py:"raw,omitempty"`
}

// ImageOf encodes an image in the mode "RGBA", or "L" for *image.Gray.
func ImageOf(m image.Image) (Image, error) {
	size := m.Bounds().Size()
	out := Image{Mode: "RGBA", Width: size.X, Height: size.Y}
	if _, ok := m.(*image.Gray); ok {
		out.Mode = "L"
	} else {
		// The PNG of an opaque image has no alpha channel; the mode is then RGB.
		if opaque, ok := m.(interface{ Opaque() bool }); ok && opaque.Opaque() {
			out.Mode = "RGB"
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, m); err != nil {
		return Image{}, fmt.Errorf("state: encode an image of %dx%d: %w", size.X, size.Y, err)
	}
	out.PNG = file.Bytes()
	return out, out.check(DefaultMaxPixels)
}

// Decode returns the pixels of an image with a PNG. It returns an error for other modes.
func (m Image) Decode() (image.Image, error) {
	if m.PNG == nil {
		return nil, fmt.Errorf("state: an image of the mode %.16q has no PNG: use Raw", m.Mode)
	}
	if err := m.check(DefaultMaxPixels); err != nil {
		return nil, err
	}
	out, err := png.Decode(bytes.NewReader(m.PNG))
	if err != nil {
		return nil, fmt.Errorf("state: decode an image of %dx%d: %w", m.Width, m.Height, err)
	}
	return out, nil
}

func (m Image) form() (Kind, any, error) {
	return KindImage, imagePayload(m), m.check(DefaultMaxPixels)
}

// rawBits returns the bits per pixel of a mode that PNG does not support, and 0 for other modes.
func rawBits(mode string) int {
	switch mode {
	case "CMYK", "F", "I", "RGBX", "RGBa":
		return 32
	case "YCbCr", "LAB", "HSV":
		return 24
	case "La", "PA", "I;16", "I;16L", "I;16B", "I;16N":
		return 16
	}
	return 0
}

// check returns an error for an image whose dimensions do not match its bytes, because code that
// decodes the image must be able to trust its dimensions.
func (m Image) check(limit int) error {
	if m.Width < 0 || m.Height < 0 || len(m.Mode) > 16 {
		return fmt.Errorf("an image of %dx%d", m.Width, m.Height)
	}
	pixels, err := elementCount([]int{m.Width, m.Height}, limit)
	if err != nil {
		return &LimitError{Limit: "MaxPixels", Max: int64(limit)}
	}
	if m.PNG == nil {
		if bits := rawBits(m.Mode); bits == 0 || pixels*bits/8 != len(m.Raw) {
			return fmt.Errorf("an image of %dx%d in the mode %.16q with %d bytes", m.Width, m.Height, m.Mode, len(m.Raw))
		}
		return nil
	}
	config, err := png.DecodeConfig(bytes.NewReader(m.PNG))
	if err != nil {
		return fmt.Errorf("an image that is not a PNG: %w", err)
	}
	if config.Width != m.Width || config.Height != m.Height || m.Raw != nil {
		return errors.New("an image whose PNG has another size")
	}
	return nil
}

func (d *decoder) image() (any, error) {
	var p imagePayload
	if err := d.decode(reflect.ValueOf(&p).Elem()); err != nil {
		return nil, err
	}
	m := Image(p)
	if err := m.check(d.limits.MaxPixels); err != nil {
		return nil, d.wrong(err)
	}
	return m, nil
}
