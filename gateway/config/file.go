package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A node is one value of a settings file or of DOMAIN_MAP, whatever it was written in. Scalars
// keep their text, so that a number means in a file what it means in the environment.
type node struct {
	kind  nodeKind
	text  string   // of scalars
	keys  []string // of an object, one per item
	items []*node  // of a list or an object
	line  int      // from 1
}

// isEmpty reports whether the node says nothing: null, an empty text, a list without items.
func (n *node) isEmpty() bool {
	switch n.kind {
	case nodeNull:
		return true
	case nodeText:
		return n.text == ""
	case nodeList:
		return len(n.items) == 0
	}
	return false
}

type nodeKind uint8

const (
	nodeNull nodeKind = iota
	nodeFlag
	nodeNumber
	nodeText
	nodeList
	nodeObject
)

func (k nodeKind) String() string {
	switch k {
	case nodeNull:
		return "nothing"
	case nodeFlag:
		return "a boolean"
	case nodeNumber:
		return "a number"
	case nodeText:
		return "a string"
	case nodeList:
		return "a list"
	case nodeObject:
		return "an object"
	}
	panic("BUG: unknown node kind")
}

// maxNesting bounds the depth of a file. Ours is four: file, DOMAIN_MAP, domain, list.
const maxNesting = 32

// A fileError says what is wrong with a text and where. It repeats names at most, never values:
// these may be secrets.
type fileError struct {
	line int
	key  string // the key that is at fault, if one is
	text string
}

func (e *fileError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.text) }

// parseFile reads a settings file: JSON when its first character is {, else YAML. The result is
// an object without duplicate keys at any depth.
//
// A file without content is a fault and not a file without settings: that is what a reader sees
// while somebody rewrites the file in place.
func parseFile(text []byte) (*node, *fileError) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) {
		return nil, &fileError{line: 1, text: "it is not UTF-8"}
	}
	head := bytes.TrimLeft(text, " \t\r\n")
	if len(head) == 0 {
		return nil, &fileError{line: 1, text: "it is empty"}
	}
	var n *node
	var err *fileError
	if head[0] == '{' {
		n, err = parseJSON(text)
	} else {
		n, err = parseYAML(string(text))
	}
	if err != nil {
		return nil, err
	}
	if n.kind != nodeObject {
		return nil, &fileError{line: n.line, text: "it is " + n.kind.String() + ", not an object of settings"}
	}
	return n, nil
}

// parseJSON reads one JSON value.
func parseJSON(text []byte) (*node, *fileError) {
	// The whole text first: Token alone would accept one value and ignore what follows.
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		at := len(text)
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = int(e.Offset)
		}
		return nil, &fileError{line: lineAt(text, at), text: "it is not valid JSON: " + err.Error()}
	}
	r := jsonReader{text: text, d: json.NewDecoder(bytes.NewReader(text))}
	r.d.UseNumber()
	return r.value(1)
}

type jsonReader struct {
	text []byte
	d    *json.Decoder
}

func (r *jsonReader) line() int { return lineAt(r.text, int(r.d.InputOffset())) }

func (r *jsonReader) value(depth int) (*node, *fileError) {
	t, err := r.d.Token()
	if err != nil {
		return nil, &fileError{line: r.line(), text: "it is not valid JSON"}
	}
	n := &node{line: r.line()}
	switch t := t.(type) {
	case nil:
	case bool:
		n.kind, n.text = nodeFlag, fmt.Sprint(t)
	case json.Number:
		n.kind, n.text = nodeNumber, t.String()
	case string:
		n.kind, n.text = nodeText, t
	case json.Delim:
		if depth > maxNesting {
			return nil, &fileError{line: n.line, text: "it is nested too deeply"}
		}
		n.kind = nodeList
		if t == '{' {
			n.kind = nodeObject
		}
		for r.d.More() {
			if n.kind == nodeObject {
				k, err := r.d.Token()
				if err != nil {
					return nil, &fileError{line: r.line(), text: "it is not valid JSON"}
				}
				if e := n.addKey(k.(string), r.line()); e != nil {
					return nil, e
				}
			}
			item, e := r.value(depth + 1)
			if e != nil {
				return nil, e
			}
			n.items = append(n.items, item)
		}
		if _, err := r.d.Token(); err != nil {
			return nil, &fileError{line: r.line(), text: "it is not valid JSON"}
		}
	}
	return n, nil
}

// addKey appends a member's name, the value follows.
func (n *node) addKey(k string, line int) *fileError {
	for _, have := range n.keys {
		if have == k {
			return &fileError{line: line, key: k, text: "key " + quote(k) + " is given twice"}
		}
	}
	n.keys = append(n.keys, k)
	return nil
}

// lineAt returns the number of the line that holds text[at].
func lineAt(text []byte, at int) int {
	return 1 + bytes.Count(text[:min(at, len(text))], []byte("\n"))
}

// parseYAML reads one YAML document: mappings, sequences and scalars. Anchors, aliases, tags and
// merge keys are refused, so that what a file says stands where one reads it.
func parseYAML(text string) (*node, *fileError) {
	tokens := lexer.Tokenize(text)
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // ours names the key
	if err != nil {
		e := &fileError{line: 1, text: "it is not valid YAML"}
		// The error's own text would quote the source, and with it secrets.
		if y, ok := errors.AsType[yaml.Error](err); ok {
			e.text += ": " + strings.ReplaceAll(y.GetMessage(), "\t", `\t`)
			if t := y.GetToken(); t != nil && t.Position != nil {
				e.line = t.Position.Line
			}
		}
		return nil, e
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &fileError{line: lineOf(doc.Body), text: "it holds more than one document"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, &fileError{line: 1, text: "it is empty"}
	}
	return fromYAML(body, 1)
}

// checkTokens refuses what we do not read, and nesting: the parser recurses, and needs time with
// the square of the depth.
func checkTokens(tokens token.Tokens) *fileError {
	flow, entries, line := 0, 0, 0
	for _, t := range tokens {
		at := 1
		if t.Position != nil {
			at = t.Position.Line
		}
		if at != line {
			line, entries = at, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			entries++ // "- - - x" nests on one line
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType, token.MappingKeyType:
			return &fileError{line: at, text: "anchors, aliases, tags, merge keys, directives and complex keys are not read"}
		}
		if flow > maxNesting || entries > maxNesting || t.Position != nil && t.Position.IndentNum > 8*maxNesting {
			return &fileError{line: at, text: "it is nested too deeply"}
		}
	}
	return nil
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

func fromYAML(y ast.Node, depth int) (*node, *fileError) {
	n := &node{line: lineOf(y)}
	if depth > maxNesting {
		return nil, &fileError{line: n.line, text: "it is nested too deeply"}
	}
	switch y := y.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.kind, n.text = nodeFlag, fmt.Sprint(y.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = nodeNumber, y.GetToken().Value
	case *ast.StringNode:
		n.kind, n.text = nodeText, y.Value
	case *ast.LiteralNode:
		n.kind, n.text = nodeText, y.Value.Value
	case *ast.SequenceNode:
		n.kind = nodeList
		for _, v := range y.Values {
			item, err := fromYAML(v, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case *ast.MappingValueNode:
		n.kind = nodeObject
		return n, n.addYAML(y, depth)
	case *ast.MappingNode:
		n.kind = nodeObject
		for _, v := range y.Values {
			if err := n.addYAML(v, depth); err != nil {
				return nil, err
			}
		}
	default:
		return nil, &fileError{line: n.line, text: "it holds " + strings.ToLower(y.Type().String()) + ", which is not read"}
	}
	return n, nil
}

func (n *node) addYAML(y *ast.MappingValueNode, depth int) *fileError {
	key, err := fromYAML(y.Key, depth+1)
	if err != nil {
		return err
	}
	if key.kind == nodeList || key.kind == nodeObject {
		return &fileError{line: key.line, text: "a key is " + key.kind.String()}
	}
	if err := n.addKey(key.text, key.line); err != nil {
		return err
	}
	item, err := fromYAML(y.Value, depth+1)
	if err != nil {
		return err
	}
	n.items = append(n.items, item)
	return nil
}
