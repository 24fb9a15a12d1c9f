package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// mimeChart is the type of what E2B reads out of a figure.
const mimeChart = "e2b/chart"

// Chart is what a figure shows, as data. It is one of [*LineChart],
// [*ScatterChart], [*BarChart], [*PieChart], [*BoxAndWhiskerChart],
// [*SuperChart] and [*UnknownChart].
type Chart interface{ chart() }

// Axes are what charts with two axes have.
type Axes struct {
	XLabel, YLabel string
	// XUnit and YUnit are what the labels have in brackets.
	XUnit, YUnit string
}

// Scale is how an axis maps values to places.
type Scale string

// The scales that matter to the type of values; others, such as "log", have
// numbers.
const (
	ScaleLinear      Scale = "linear"
	ScaleLog         Scale = "log"
	ScaleDatetime    Scale = "datetime"
	ScaleCategorical Scale = "categorical"
)

// Grid is how the axes of line and scatter charts are divided.
type Grid struct {
	Axes
	XScale, YScale           Scale
	XTicks, YTicks           []Coordinate
	XTickLabels, YTickLabels []string
}

// Coordinate is a place on an axis: Number, unless the scale is one of times or
// names.
type Coordinate struct {
	// Number may be NaN or infinite.
	Number float64
	// Time is set on a datetime scale.
	Time time.Time
	// Text is what it was when it was not a number.
	Text string
}

// Point is a point of a series.
type Point struct{ X, Y Coordinate }

// Series is a line, or a group of points that belong together.
type Series struct {
	Label  string
	Points []Point
}

// LineChart has lines.
type LineChart struct {
	Title string
	Grid
	Lines []Series
}

// ScatterChart has points.
type ScatterChart struct {
	Title string
	Grid
	Groups []Series
}

// BarChart has bars; horizontal ones are told as upright ones.
type BarChart struct {
	Title string
	Axes
	Bars []Bar
}

// Bar is a bar of a chart.
type Bar struct {
	Label, Group string
	Value        float64
}

// PieChart has slices.
type PieChart struct {
	Title  string
	Slices []PieSlice
}

// PieSlice is a slice; Angle is how many degrees it spans.
type PieSlice struct {
	Label         string
	Angle, Radius float64
}

// BoxAndWhiskerChart has boxes.
type BoxAndWhiskerChart struct {
	Title string
	Axes
	Boxes []Box
}

// Box is the distribution of some values.
type Box struct {
	Label                                          string
	Min, FirstQuartile, Median, ThirdQuartile, Max float64
	Outliers                                       []float64
}

// SuperChart is a figure with more than one chart.
type SuperChart struct {
	Title  string
	Charts []Chart
}

// UnknownChart is a figure that says nothing known.
type UnknownChart struct {
	Title string
	// Type is what it calls itself, mostly "unknown".
	Type string
	// Raw is all that came.
	Raw json.RawMessage
	// Err tells why it is not a chart of its Type; nil when nobody says it is.
	Err error
}

func (*LineChart) chart()          {}
func (*ScatterChart) chart()       {}
func (*BarChart) chart()           {}
func (*PieChart) chart()           {}
func (*BoxAndWhiskerChart) chart() {}
func (*SuperChart) chart()         {}
func (*UnknownChart) chart()       {}

// Chart is the figure's data; ok is false when there is none. E2B's service sends
// an empty object for a figure out of which it could read nothing: that is none.
// Data that is not as it should be is an [*UnknownChart] that says so.
func (r Result) Chart() (chart Chart, ok bool) {
	data, ok := r.Data[mimeChart]
	if !ok || isEmptyObject(data) {
		return nil, false
	}
	return parseChart(data, true), true
}

func isEmptyObject(data []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(data), []byte("{"))
	return ok && string(bytes.TrimSpace(rest)) == "}"
}

// chartJSON is a chart of any type. What is null is as what is absent.
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

// parseChart reads a chart. Only the outermost may be a superchart: no figure
// has another, and reading each part anew must not go deep.
func parseChart(data json.RawMessage, outermost bool) Chart {
	var c chartJSON
	if err := json.Unmarshal(data, &c); err != nil {
		return &UnknownChart{Raw: data, Err: fmt.Errorf("sandbox: read a chart: %w", err)}
	}
	chart, err := c.typed(outermost)
	if chart == nil || err != nil {
		unknown := &UnknownChart{Title: c.Title, Type: c.Type, Raw: data}
		if err != nil {
			unknown.Err = fmt.Errorf("sandbox: read a chart of type %.32q: %w", c.Type, err)
		}
		return unknown
	}
	return chart
}

var errElements = errors.New("it has no elements")

// typed gives nil for a type that is not known.
func (c *chartJSON) typed(outermost bool) (Chart, error) {
	axes := Axes{c.XLabel, c.YLabel, c.XUnit, c.YUnit}
	switch c.Type {
	case "line":
		series, err := c.series()
		return &LineChart{c.Title, c.grid(axes), series}, err
	case "scatter":
		series, err := c.series()
		return &ScatterChart{c.Title, c.grid(axes), series}, err
	case "bar":
		bars, err := elements(c, func(e struct {
			Label, Group string
			Value        *number
		}) (Bar, error) {
			return Bar{e.Label, e.Group, e.Value.float()}, required(e.Value)
		})
		return &BarChart{c.Title, axes, bars}, err
	case "pie":
		slices, err := elements(c, func(e struct {
			Label         string
			Angle, Radius *number
		}) (PieSlice, error) {
			return PieSlice{e.Label, e.Angle.float(), e.Radius.float()}, required(e.Angle, e.Radius)
		})
		return &PieChart{c.Title, slices}, err
	case "box_and_whisker":
		boxes, err := elements(c, func(e struct {
			Label    string
			Min      *number
			First    *number `json:"first_quartile"`
			Median   *number
			Third    *number `json:"third_quartile"`
			Max      *number
			Outliers []number
		}) (Box, error) {
			b := Box{e.Label, e.Min.float(), e.First.float(), e.Median.float(), e.Third.float(), e.Max.float(), nil}
			for _, o := range e.Outliers {
				b.Outliers = append(b.Outliers, float64(o))
			}
			return b, required(e.Min, e.First, e.Median, e.Third, e.Max)
		})
		return &BoxAndWhiskerChart{c.Title, axes, boxes}, err
	case "superchart":
		if !outermost {
			return nil, errors.New("it is in another superchart")
		}
		charts, err := elements(c, func(e json.RawMessage) (Chart, error) { return parseChart(e, false), nil })
		return &SuperChart{c.Title, charts}, err
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

func (c *chartJSON) series() ([]Series, error) {
	return elements(c, func(e struct {
		Label  string
		Points [][]coordinate
	}) (Series, error) {
		s := Series{Label: e.Label, Points: make([]Point, len(e.Points))}
		for i, p := range e.Points {
			if len(p) != 2 {
				return s, fmt.Errorf("a point has %d coordinates", len(p))
			}
			s.Points[i] = Point{p[0].on(c.XScale), p[1].on(c.YScale)}
		}
		return s, nil
	})
}

// elements reads the elements of a chart, each by one.
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

// number is a number of JSON, or one of those that JSON has no form for, which
// kernels write as strings.
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	var c coordinate
	if err := c.UnmarshalJSON(text); err != nil {
		return err
	}
	if c.text != "" {
		return fmt.Errorf("%.32q is not a number", c.text)
	}
	*n = number(c.number)
	return nil
}

func (n *number) float() float64 {
	if n == nil {
		return 0
	}
	return float64(*n)
}

func required(numbers ...*number) error {
	for _, n := range numbers {
		if n == nil {
			return errors.New("a number is missing")
		}
	}
	return nil
}

// coordinate is a number, or a string that is none.
type coordinate struct {
	number float64
	text   string
}

func (c *coordinate) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		c.number = math.NaN()
		return nil
	}
	if text[0] != '"' {
		return json.Unmarshal(text, &c.number)
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	switch strings.ToLower(s) {
	case "nan":
		c.number = math.NaN()
	case "inf", "infinity":
		c.number = math.Inf(1)
	case "-inf", "-infinity":
		c.number = math.Inf(-1)
	default:
		c.text = s
	}
	return nil
}

func (c coordinate) on(s Scale) Coordinate {
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
		to[i] = c.on(s)
	}
	return to
}
