package mcpserver

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxPicture and maxEdge bound a picture: models scale down a larger picture, and still charge for
	// it.
	maxPicture = 1 << 20
	maxEdge    = 1568
	// maxPixels bounds the memory for a picture, whatever its header says.
	maxPixels = 16 << 20
)

// attachPicture adds a PNG or JPEG to the answer, scaled to a size that models accept. If the
// picture was changed, the answer also links to the original file.
func (c *call) attachPicture(name, mimeType string, content []byte) {
	shown, shownType, err := fitted(content, mimeType)
	if err != nil {
		c.answer.note("%s is no picture that can be shown: %s", name, message(err))
		c.attachFile(name, mimeType, content)
		return
	}
	c.answer.attach(&sdk.ImageContent{MIMEType: shownType, Data: shown})
	if !bytes.Equal(shown, content) {
		c.attachFile(name, mimeType, content)
	}
}

// attachFile adds a link to a file.
func (c *call) attachFile(name, mimeType string, content []byte) {
	if len(content) > maxKeptPicture {
		c.answer.note("%s has %d bytes, too many to keep: write it to a file in the sandbox", name, len(content))
		return
	}
	c.answer.attach(c.server.outputs.keep(name, mimeType, content))
}

// fitted returns a picture in a size that models accept.
func fitted(content []byte, mimeType string) ([]byte, string, error) {
	config, _, err := image.DecodeConfig(bytes.NewReader(content))
	if err != nil {
		return nil, "", err
	}
	if config.Width <= 0 || config.Height <= 0 || config.Width > maxPixels/config.Height {
		return nil, "", errTooManyPixels
	}
	if len(content) <= maxPicture && max(config.Width, config.Height) <= maxEdge {
		return content, mimeType, nil
	}
	decoded, _, err := image.Decode(bytes.NewReader(content))
	if err != nil {
		return nil, "", err
	}
	picture, ok := decoded.(image.RGBA64Image)
	if !ok {
		return nil, "", errNoPixels
	}
	for edge := maxEdge; ; edge /= 2 {
		if shown, shownType, err := encoded(scaled(picture, edge)); err != nil || len(shown) <= maxPicture || edge < 64 {
			return shown, shownType, err
		}
	}
}

const (
	errTooManyPixels = pictureError("it has more than 16 million pixels, or none")
	errNoPixels      = pictureError("its pixels cannot be read")
)

type pictureError string

func (e pictureError) Error() string { return string(e) }

// scaled returns the picture with no edge longer than edge.
func scaled(picture image.RGBA64Image, edge int) image.RGBA64Image {
	size := picture.Bounds().Size()
	longest := max(size.X, size.Y)
	if longest <= edge {
		return picture
	}
	small := image.NewRGBA(image.Rect(0, 0, max(1, size.X*edge/longest), max(1, size.Y*edge/longest)))
	for y := range small.Rect.Max.Y {
		for x := range small.Rect.Max.X {
			average(small, picture, x, y)
		}
	}
	return small
}

// average sets the pixel of small at x and y to the mean of the area of large that the pixel
// covers. A pixel of large that is covered in part is weighted with that part.
func average(small *image.RGBA, large image.RGBA64Image, x, y int) {
	begin, from, to := large.Bounds().Min, large.Bounds().Size(), small.Rect.Max
	var sum [4]int64
	for v := y * from.Y / to.Y; v*to.Y < (y+1)*from.Y; v++ {
		rows := shared(v, to.Y, y, from.Y)
		for u := x * from.X / to.X; u*to.X < (x+1)*from.X; u++ {
			weight := rows * shared(u, to.X, x, from.X)
			c := large.RGBA64At(begin.X+u, begin.Y+v)
			for i, value := range [...]uint16{c.R, c.G, c.B, c.A} {
				sum[i] += weight * int64(value)
			}
		}
	}
	const per8Bit = 0xffff / 0xff
	area := int64(from.X) * int64(from.Y)
	for i, total := range sum {
		small.Pix[small.PixOffset(x, y)+i] = uint8((total/per8Bit + area/2) / area)
	}
}

// shared returns the length of the overlap of two pieces of one line. The first is piece i if the
// line is divided into pieces of length n, and the second is piece j if it is divided into pieces
// of length m.
func shared(i, n, j, m int) int64 {
	return int64(min((i+1)*n, (j+1)*m) - max(i*n, j*m))
}

// encoded returns the picture as PNG, which keeps the lines of plots sharp. If the PNG is too
// large, it returns a JPEG with a white background.
func encoded(picture image.RGBA64Image) ([]byte, string, error) {
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		return nil, "", err
	}
	if out.Len() <= maxPicture {
		return out.Bytes(), "image/png", nil
	}
	out.Reset()
	err := jpeg.Encode(&out, onWhite(picture), &jpeg.Options{Quality: 85})
	return out.Bytes(), "image/jpeg", err
}

// onWhite returns the picture on a white background.
func onWhite(picture image.RGBA64Image) image.Image {
	page := image.NewRGBA(picture.Bounds())
	for y := page.Rect.Min.Y; y < page.Rect.Max.Y; y++ {
		for x := page.Rect.Min.X; x < page.Rect.Max.X; x++ {
			c := picture.RGBA64At(x, y)
			white := 0xffff - c.A
			page.SetRGBA64(x, y, color.RGBA64{R: c.R + white, G: c.G + white, B: c.B + white, A: 0xffff})
		}
	}
	return page
}
