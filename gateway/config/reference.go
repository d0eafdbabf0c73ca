package config

import "strings"

// Reference returns the README's tables of every setting, in Markdown, made from the table.
func Reference() string {
	var b strings.Builder
	for i, sec := range sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("### " + sec.Title + "\n\n| setting | default | legal | live | meaning |\n|---|---|---|---|---|\n")
		for j := range sec.Rows {
			s := &sec.Rows[j]
			reload := "R"
			if s.Live {
				reload = "L"
			}
			cells := []string{s.Name, s.defaultText(), s.Legal(), reload, s.Help}
			b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		}
	}
	return b.String()
}

// defaultText is the default as the reference shows it.
func (s *Setting) defaultText() string {
	switch {
	case s.Note != "":
		return s.Note
	case s.Default != "":
		return s.Default
	}
	return "unset"
}
