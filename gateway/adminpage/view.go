// Package adminpage is the operators' live page: what it looks like, without a
// word on where its numbers come from. It has no asset outside of itself and works
// without script; the script only fetches the same numbers again.
package adminpage

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// A View is the page's contents at one moment. Whoever makes it keeps it no longer
// than a page is written.
type View struct {
	Version string
	State   string
	Why     string // what keeps the node from being ready; empty when it is
	Up      string // since when, as a duration

	Sections []Section
	Charts   []Chart
	Sample   int // number of the samples that the charts show

	shape string
}

// A Section is a heading with its tables.
type Section struct {
	Title  string
	Tables []Table
}

// A Table has one name and as many cells per row as its head says. A table without
// a head is of names and values.
type Table struct {
	Title string // empty for none
	Head  []string
	Rows  []Row
}

// Wide reports whether the table needs more room than a column of the page has.
func (t Table) Wide() bool { return len(t.Head) > 3 }

// A Row is hidden while all its cells are Zero and it says so.
type Row struct {
	Name   string
	Title  string // what a reader gets who points at the name: the metric
	Cells  []Cell
	IfNone bool // hide while there is nothing to tell
}

// Hidden reports whether the row has nothing to tell.
func (r Row) Hidden() bool {
	if !r.IfNone {
		return false
	}
	for _, c := range r.Cells {
		if !c.Zero {
			return false
		}
	}
	return true
}

// A Cell is one value, with a bar if Most is above 0.
type Cell struct {
	Text        string
	Zero        bool
	Value, Most float64
}

// Bar reports whether the cell has a bar.
func (c Cell) Bar() bool { return c.Most > 0 }

// High is where the bar begins to be alarming.
func (c Cell) High() float64 { return 0.9 * c.Most }

// A Chart is one line over the last fifteen minutes.
type Chart struct {
	Name, Unit string
	Last, Most string // as texts
	Points     string // of the polyline, in a box of Width × Height
}

// Width and Height are the box of a chart's points.
const (
	Width  = 180
	Height = 40
)

// A Line makes the points of a Chart.
type Line struct {
	Most float64 // the value at the top of the box
	b    strings.Builder
}

// Put adds a value at a place from 0 to Width−1. NaN is left out.
func (l *Line) Put(place int, v float64) {
	if math.IsNaN(v) {
		return
	}
	y := 0.0
	if l.Most > 0 {
		y = v / l.Most * (Height - 2)
	}
	if l.b.Len() > 0 {
		l.b.WriteByte(' ')
	}
	l.b.WriteString(strconv.Itoa(place))
	l.b.WriteByte(',')
	l.b.WriteString(strconv.FormatFloat(Height-1-y, 'f', 1, 64))
}

// Points returns them as SVG writes them.
func (l *Line) Points() string { return l.b.String() }

// Shape stands for all names of the page: the script loads a page anew when they
// are others, as after an update.
func (v *View) Shape() string {
	if v.shape != "" {
		return v.shape
	}
	h := fnv.New64a()
	name := func(s string) { h.Write(append([]byte(s), 0)) }
	name(v.Version)
	for _, s := range v.Sections {
		name(s.Title)
		for _, t := range s.Tables {
			name(t.Title)
			for _, r := range t.Rows {
				name(r.Name)
				name(strconv.Itoa(len(r.Cells)))
				for _, c := range r.Cells {
					name(strconv.FormatBool(c.Bar()))
				}
			}
		}
	}
	for _, c := range v.Charts {
		name(c.Name)
	}
	v.shape = strconv.FormatUint(h.Sum64(), 36)
	return v.shape
}

// update is what the script gets: the view's values in the order of the page.
type update struct {
	Shape  string      `json:"shape"`
	State  string      `json:"state"`
	Why    string      `json:"why"`
	Up     string      `json:"up"`
	Cells  []string    `json:"cells"`
	Hidden []int       `json:"hidden"` // rows
	Bars   [][]float64 `json:"bars"`   // value and most
	Sample int         `json:"sample"`
	Charts [][3]string `json:"charts,omitempty"` // last, most, points
}

// JSON returns the values for a page that has the charts of sample already; charts
// that it has are left out.
func (v *View) JSON(sample int) []byte {
	u := update{Shape: v.Shape(), State: v.State, Why: v.Why, Up: v.Up, Sample: v.Sample, Hidden: []int{}, Bars: [][]float64{}}
	row := 0
	for _, s := range v.Sections {
		for _, t := range s.Tables {
			for _, r := range t.Rows {
				if r.Hidden() {
					u.Hidden = append(u.Hidden, row)
				}
				row++
				for _, c := range r.Cells {
					u.Cells = append(u.Cells, c.Text)
					if c.Bar() {
						u.Bars = append(u.Bars, []float64{c.Value, c.Most})
					}
				}
			}
		}
	}
	if sample != v.Sample {
		for _, c := range v.Charts {
			u.Charts = append(u.Charts, [3]string{c.Last, c.Most, c.Points})
		}
	}
	b, err := json.Marshal(u)
	if err != nil {
		panic("BUG: adminpage: " + err.Error()) // texts and finite numbers only
	}
	return b
}
