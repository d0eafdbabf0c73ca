package main

import (
	"fmt"
	"math"
	"strings"
)

// A table is a Markdown table that is also aligned as text.
type table struct {
	rows [][]string // the first is the head
}

// newTable begins a table; corner is the head of the first column.
func newTable(corner string, columns ...string) *table {
	return &table{rows: [][]string{append([]string{corner}, columns...)}}
}

// add appends a row. Entries that are missing at its end are shown as a dash.
func (t *table) add(label string, entries ...string) {
	row := append([]string{label}, entries...)
	for len(row) < len(t.rows[0]) {
		row = append(row, "–")
	}
	t.rows = append(t.rows, row)
}

func (t *table) String() string {
	width := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, entry := range row {
			width[i] = max(width[i], len([]rune(entry)))
		}
	}
	var b strings.Builder
	for n, row := range t.rows {
		for i, entry := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(entry)))
			if i == 0 {
				b.WriteString("| " + entry + pad + " |")
			} else {
				b.WriteString(" " + pad + entry + " |")
			}
		}
		b.WriteByte('\n')
		if n > 0 {
			continue
		}
		for i, w := range width {
			if i == 0 {
				b.WriteString("|" + strings.Repeat("-", w+2) + "|")
			} else {
				b.WriteString(strings.Repeat("-", w+1) + ":|")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// number shows three significant digits, whole numbers from 100 on.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
