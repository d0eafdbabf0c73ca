package adminpage

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func sampleView() *View {
	return &View{
		Version: "1.0", State: "ready", Up: "5 s", Sample: 7,
		Sections: []Section{
			{Title: "First", Tables: []Table{
				{Head: []string{"loop", "a", "b"}, Rows: []Row{{Name: "0", Cells: []Cell{{Text: "1"}, {Text: "2"}}}}},
				{Title: "Counted", Rows: []Row{
					{Name: "zero", IfNone: true, Cells: []Cell{{Text: "0", Zero: true}}},
					{Name: "one", IfNone: true, Cells: []Cell{{Text: "3"}}},
				}},
			}},
			{Title: "Second", Tables: []Table{{Rows: []Row{{Name: "of", Cells: []Cell{{Text: "5 of 10", Value: 5, Most: 10}}}}}}},
		},
		Charts: []Chart{{Name: "line", Last: "4", Most: "9", Points: "1,2 3,4"}},
	}
}

// The script finds by its place what stands in the page: both are in one order.
func TestJSONFitsHTML(t *testing.T) {
	v := sampleView()
	html := string(v.HTML())
	var cells []string
	for _, m := range regexp.MustCompile(`<td><span>(.*?)</span>`).FindAllStringSubmatch(html, -1) {
		cells = append(cells, m[1])
	}
	var hidden []int
	for i, m := range regexp.MustCompile(`<tr( hidden)?><th scope="row"`).FindAllStringSubmatch(html, -1) {
		if m[1] != "" {
			hidden = append(hidden, i)
		}
	}
	var u update
	if err := json.Unmarshal(v.JSON(-1), &u); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(u.Cells, cells) || !slices.Equal(u.Hidden, hidden) {
		t.Errorf("cells %q and hidden rows %v, the page has %q and %v", u.Cells, u.Hidden, cells, hidden)
	}
	if bars := strings.Count(html, "<meter"); len(u.Bars) != bars || bars != 1 || u.Bars[0][0] != 5 || u.Bars[0][1] != 10 {
		t.Errorf("bars %v, the page has %d", u.Bars, bars)
	}
	if len(u.Charts) != 1 || u.Charts[0] != [3]string{"4", "9", "1,2 3,4"} || !strings.Contains(html, `points="1,2 3,4"`) {
		t.Errorf("charts %q", u.Charts)
	}
	if !strings.Contains(html, `data-shape="`+u.Shape+`"`) || !strings.Contains(html, `data-sample="7"`) {
		t.Error("the page names another shape or sample")
	}
	// Charts that the page has are not sent again.
	u = update{}
	json.Unmarshal(v.JSON(7), &u)
	if u.Charts != nil || u.Sample != 7 {
		t.Errorf("charts %q of sample %d", u.Charts, u.Sample)
	}
}

// What a page shows is its shape, what it says is not.
func TestShape(t *testing.T) {
	f := func(name string, same bool, change func(*View)) {
		t.Helper()
		a, b := sampleView(), sampleView()
		change(b)
		if (a.Shape() == b.Shape()) != same {
			t.Errorf("%s: same shape %v", name, !same)
		}
	}
	f("nothing", true, func(*View) {})
	f("a value", true, func(v *View) { v.Sections[0].Tables[0].Rows[0].Cells[0].Text = "9" })
	f("the state", true, func(v *View) { v.State, v.Why = "draining", "not ready" })
	f("a row", false, func(v *View) { v.Sections[0].Tables[0].Rows[0].Name = "other" })
	f("a chart", false, func(v *View) { v.Charts = nil })
	f("a version", false, func(v *View) { v.Version = "2" })
	f("a bar", false, func(v *View) { v.Sections[1].Tables[0].Rows[0].Cells[0].Most = 0 })
}

// Whatever a value says, it is text.
func TestHTMLEscapes(t *testing.T) {
	v := sampleView()
	v.Why = `<script>alert(1)</script>`
	v.Sections[0].Title = `"><img src=x>`
	if html := string(v.HTML()); strings.Contains(html, "<script>alert") || strings.Contains(html, "<img") {
		t.Error("markup comes through")
	}
}

// Nothing in the page needs what its policy forbids.
func TestPageKeepsItsPolicy(t *testing.T) {
	html := string(sampleView().HTML())
	for _, bad := range []string{"style=", "<style", "onclick", "onload", "javascript:", "http://", "https://", "//"} {
		if strings.Contains(strings.ReplaceAll(html, "http-equiv", ""), bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if n := strings.Count(html, "<script"); n != 1 || !strings.Contains(html, `<script src="page.js" defer></script>`) {
		t.Errorf("%d scripts", n)
	}
	for path, a := range Assets {
		text := strings.ReplaceAll(string(a.Body), "http://www.w3.org/2000/svg", "")
		if strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "url(") || strings.Contains(text, "@import") || strings.Contains(text, "eval") {
			t.Errorf("%s names something outside", path)
		}
	}
}

func TestLine(t *testing.T) {
	f := func(most float64, values []float64, want string) {
		t.Helper()
		l := Line{Most: most}
		for i, v := range values {
			l.Put(i, v)
		}
		if got := l.Points(); got != want {
			t.Errorf("%v of %v: %q, want %q", values, most, got, want)
		}
	}
	f(0, nil, "")
	f(0, []float64{0, 0}, "0,39.0 1,39.0")
	f(10, []float64{0, 5, 10}, "0,39.0 1,20.0 2,1.0")
	f(10, []float64{math.NaN(), 10, math.NaN(), 0}, "1,1.0 3,39.0")
}
