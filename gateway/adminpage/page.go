package adminpage

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
)

//go:embed page.html page.css page.js icon.svg
var files embed.FS

var page = template.Must(template.New("page.html").ParseFS(files, "page.html"))

// Policy is the Content-Security-Policy of everything served here: the page's own
// files and its own numbers, nothing inline, nobody's frame.
const Policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// HTML returns the page with its numbers.
func (v *View) HTML() []byte {
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		panic("BUG: adminpage: " + err.Error()) // the template fits the View, and a buffer takes everything
	}
	return b.Bytes()
}

// An Asset is one of the page's files.
type Asset struct {
	Type string // Content-Type
	Body []byte
}

// Assets are the page's files by the paths that it names.
var Assets = map[string]Asset{
	"/page.css": {"text/css; charset=utf-8", asset("page.css")},
	"/page.js":  {"text/javascript; charset=utf-8", asset("page.js")},
	"/icon.svg": {"image/svg+xml", asset("icon.svg")},
}

func asset(name string) []byte {
	b, err := fs.ReadFile(files, name)
	if err != nil {
		panic("BUG: adminpage: " + err.Error())
	}
	return b
}
