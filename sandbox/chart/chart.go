// Package chart decodes the data of figures and data frames in the results of a sandbox, in
// E2B's format. The values come from the sandbox and may be any value of their types.
package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// MIMEType is the MIME type of a figure's data in a result.
const MIMEType = "e2b/chart"

// Chart is the data of a figure. It is one of [*Line], [*Scatter], [*Bar], [*Pie],
// [*BoxAndWhisker], [*Super] and [*Unknown].
type Chart interface{ chart() }

// Axes is embedded in charts with two axes.
type Axes struct {
	XLabel, YLabel string
	// XUnit and YUnit are the units of the axes: those parts of the axes' labels that are in brackets.
	XUnit, YUnit string
}

// Scale is the mapping of an axis from values to positions.
type Scale string

// These are the known scales. A figure may have other scales. A [Coordinate] is a time on
// ScaleDatetime, a name on ScaleCategorical, and a number on all other scales.
const (
	ScaleLinear      Scale = "linear"
	ScaleLog         Scale = "log"
	ScaleDatetime    Scale = "datetime"
	ScaleCategorical Scale = "categorical"
)

// Grid describes the division of the axes in line and scatter charts.
type Grid struct {
	Axes
	XScale, YScale           Scale
	XTicks, YTicks           []Coordinate
	XTickLabels, YTickLabels []string
}

// Coordinate is a position on an axis. It is a Number, except on a scale of times or names.
type Coordinate struct {
	// Number may be NaN or infinite.
	Number float64
	// Time is the position on a datetime scale.
	Time time.Time
	// Text is the original text of a value that is not a number.
	Text string
}

// Point is a point of a series.
type Point struct{ X, Y Coordinate }

// PointData is a line, or a group of points that belong together.
type PointData struct {
	Label  string
	Points []Point
}

// Line is a chart of lines.
type Line struct {
	Title string
	Grid
	Lines []PointData
}

// Scatter is a chart of points.
type Scatter struct {
	Title string
	Grid
	Groups []PointData
}

// Bar is a chart of bars. Horizontal bars are reported as vertical ones.
type Bar struct {
	Title string
	Axes
	Bars []BarData
}

// BarData is a bar of a chart.
type BarData struct {
	Label, Group string
	Value        float64
}

// Pie is a chart of slices.
type Pie struct {
	Title  string
	Slices []PieData
}

// PieData is a slice of a pie chart. Angle is its size in degrees.
type PieData struct {
	Label         string
	Angle, Radius float64
}

// BoxAndWhisker is a chart of boxes.
type BoxAndWhisker struct {
	Title string
	Axes
	Boxes []BoxData
}

// BoxData is the distribution of some values.
type BoxData struct {
	Label                                          string
	Min, FirstQuartile, Median, ThirdQuartile, Max float64
	Outliers                                       []float64
}

// Super is a figure with more than one chart.
type Super struct {
	Title  string
	Charts []Chart
}

// Unknown is a figure whose data could not be decoded as one of the other charts.
type Unknown struct {
	Title string
	// Type is the type that the figure itself reports, usually "unknown".
	Type string
	// Raw contains all received data.
	Raw json.RawMessage
	// Err is the reason why the data could not be decoded as a chart of its Type. Nil means
	// that the Type is unknown.
	Err error
}

func (*Line) chart()          {}
func (*Scatter) chart()       {}
func (*Bar) chart()           {}
func (*Pie) chart()           {}
func (*BoxAndWhisker) chart() {}
func (*Super) chart()         {}
func (*Unknown) chart()       {}

// Parse decodes the data of a figure. If there is no data, ok is false. For a figure that E2B's
// service could not read at all, the service sends an empty object. Then ok is false, too. For
// malformed data, Parse returns an [*Unknown] with the error.
func Parse(data json.RawMessage) (c Chart, ok bool) {
	if isEmptyObject(data) {
		return nil, false
	}
	return parse(data, true), true
}

func isEmptyObject(data []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(data), []byte("{"))
	return ok && string(bytes.TrimSpace(rest)) == "}"
}

// chartJSON is a chart of any type. Null is treated like a missing field.
type chartJSON struct {
	Type        string          `json:"type"`
	Title       string          `json:"title"`
	Elements    json.RawMessage `json:"elements"`
	XLabel      string          `json:"x_label"`
	YLabel      string          `json:"y_label"`
	XUnit       string          `json:"x_unit"`
	YUnit       string          `json:"y_unit"`
	XScale      Scale           `json:"x_scale"`
	YScale      Scale           `json:"y_scale"`
	XTicks      []coordinate    `json:"x_ticks"`
	YTicks      []coordinate    `json:"y_ticks"`
	XTickLabels []string        `json:"x_tick_labels"`
	YTickLabels []string        `json:"y_tick_labels"`
}

// maxValues limits the JSON values of a chart. It suffices for 300,000 points.
const maxValues = 1 << 20

// parse decodes a chart. Only the outermost chart may be a superchart, because figures do not nest
// supercharts. If they did, decoding could be slow, because each part is decoded again at each
// level.
func parse(data json.RawMessage, outermost bool) Chart {
	var c chartJSON
	if err := boundjson.Unmarshal(data, &c, maxValues, math.MaxInt); err != nil {
		return &Unknown{Raw: data, Err: fmt.Errorf("chart: read a chart: %w", err)}
	}
	chart, err := c.typed(outermost)
	if chart == nil || err != nil {
		unknown := &Unknown{Title: c.Title, Type: c.Type, Raw: data}
		if err != nil {
			unknown.Err = fmt.Errorf("chart: read a chart of type %.32q: %w", c.Type, err)
		}
		return unknown
	}
	return chart
}

var errElements = errors.New("it has no elements")

// typed returns the chart, or nil for an unknown type.
func (c *chartJSON) typed(outermost bool) (Chart, error) {
	axes := Axes{c.XLabel, c.YLabel, c.XUnit, c.YUnit}
	switch c.Type {
	case "line":
		series, err := c.series()
		return &Line{c.Title, c.grid(axes), series}, err
	case "scatter":
		series, err := c.series()
		return &Scatter{c.Title, c.grid(axes), series}, err
	case "bar":
		bars, err := elements(c, func(e struct {
			Label, Group string
			Value        *jupyter.Number
		}) (BarData, error) {
			return BarData{e.Label, e.Group, float(e.Value)}, required(e.Value)
		})
		return &Bar{c.Title, axes, bars}, err
	case "pie":
		slices, err := elements(c, func(e struct {
			Label         string
			Angle, Radius *jupyter.Number
		}) (PieData, error) {
			return PieData{e.Label, float(e.Angle), float(e.Radius)}, required(e.Angle, e.Radius)
		})
		return &Pie{c.Title, slices}, err
	case "box_and_whisker":
		boxes, err := elements(c, func(e struct {
			Label    string
			Min      *jupyter.Number
			First    *jupyter.Number `json:"first_quartile"`
			Median   *jupyter.Number
			Third    *jupyter.Number `json:"third_quartile"`
			Max      *jupyter.Number
			Outliers []jupyter.Number
		}) (BoxData, error) {
			b := BoxData{e.Label, float(e.Min), float(e.First), float(e.Median), float(e.Third), float(e.Max), nil}
			for _, o := range e.Outliers {
				b.Outliers = append(b.Outliers, float64(o))
			}
			return b, required(e.Min, e.First, e.Median, e.Third, e.Max)
		})
		return &BoxAndWhisker{c.Title, axes, boxes}, err
	case "superchart":
		if !outermost {
			return nil, errors.New("it is in another superchart")
		}
		charts, err := elements(c, func(e json.RawMessage) (Chart, error) { return parse(e, false), nil })
		return &Super{c.Title, charts}, err
	}
	return nil, nil
}

func (c *chartJSON) grid(axes Axes) Grid {
	return Grid{
		Axes: axes, XScale: c.XScale, YScale: c.YScale,
		XTicks: onScale(c.XTicks, c.XScale), YTicks: onScale(c.YTicks, c.YScale),
		XTickLabels: c.XTickLabels, YTickLabels: c.YTickLabels,
	}
}

func (c *chartJSON) series() ([]PointData, error) {
	return elements(c, func(e struct {
		Label  string
		Points [][]coordinate
	}) (PointData, error) {
		s := PointData{Label: e.Label, Points: make([]Point, len(e.Points))}
		for i, p := range e.Points {
			if len(p) != 2 {
				return s, fmt.Errorf("a point has %d coordinates", len(p))
			}
			s.Points[i] = Point{p[0].onScale(c.XScale), p[1].onScale(c.YScale)}
		}
		return s, nil
	})
}

// elements converts each element of a chart with the function one.
func elements[From, To any](c *chartJSON, one func(From) (To, error)) ([]To, error) {
	var from []From
	if len(c.Elements) == 0 || string(c.Elements) == "null" {
		return nil, errElements
	}
	if err := json.Unmarshal(c.Elements, &from); err != nil {
		return nil, err
	}
	to := make([]To, len(from))
	for i, e := range from {
		var err error
		if to[i], err = one(e); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return to, nil
}

// float returns the value of n, or 0 if n is nil.
func float(n *jupyter.Number) float64 {
	if n == nil {
		return 0
	}
	return float64(*n)
}

func required(numbers ...*jupyter.Number) error {
	for _, n := range numbers {
		if n == nil {
			return errors.New("a number is missing")
		}
	}
	return nil
}

// coordinate is a number, or a string that is not a number.
type coordinate struct {
	number float64
	text   string
}

func (c *coordinate) UnmarshalJSON(data []byte) (err error) {
	c.number, c.text, err = jupyter.ParseNumber(data)
	return err
}

func (c coordinate) onScale(s Scale) Coordinate {
	at := Coordinate{Number: c.number, Text: c.text}
	if s == ScaleDatetime {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", time.DateOnly} {
			if t, err := time.Parse(layout, c.text); err == nil {
				at.Time = t
				break
			}
		}
	}
	return at
}

func onScale(from []coordinate, s Scale) []Coordinate {
	to := make([]Coordinate, len(from))
	for i, c := range from {
		to[i] = c.onScale(s)
	}
	return to
}
