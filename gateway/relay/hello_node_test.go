package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var updateNode = flag.Bool("update-node", false, "ask node for the verdicts of the hello corpus again")

const (
	nodeVerdictsFile = "testdata/hello_node.txt"
	nodeCases        = 20000
)

// A JavaScript peer decides what a hello is. testdata/hello_node.txt holds what Node.js said of a corpus
// that is made here: the corpus' hash, then a letter for each payload as testdata/hello_node.mjs has
// them. Run with -update-node, and node installed, after a change of the corpus.
func TestHelloAgainstNode(t *testing.T) {
	corpus := helloCorpus(nodeCases)
	var input bytes.Buffer
	for _, payload := range corpus {
		input.Write(binary.BigEndian.AppendUint32(nil, uint32(len(payload))))
		input.Write(payload)
	}
	sum := sha256.Sum256(input.Bytes())
	hash := hex.EncodeToString(sum[:])
	if *updateNode {
		cmd := exec.Command("node", "testdata/hello_node.mjs")
		cmd.Stdin, cmd.Stderr = &input, os.Stderr
		verdicts, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := []byte(hash + "\n")
		for len(verdicts) > 0 {
			n := min(100, len(verdicts))
			lines = append(append(lines, verdicts[:n]...), '\n')
			verdicts = verdicts[n:]
		}
		if err := os.WriteFile(nodeVerdictsFile, lines, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	file, err := os.ReadFile(nodeVerdictsFile)
	if err != nil {
		t.Fatal(err)
	}
	wantHash, rest, _ := strings.Cut(string(file), "\n")
	verdicts := strings.ReplaceAll(rest, "\n", "")
	if wantHash != hash || len(verdicts) != len(corpus) {
		t.Fatal("the verdicts are of another corpus; run with -update-node")
	}
	var s helloScanner
	for i, payload := range corpus {
		s.Reset()
		s.Write(payload)
		got := byte('o')
		switch {
		case !s.json.complete():
			got = '.'
		case s.End():
			got = 'r'
		case s.kind == messageHello:
			got = 'h'
		case s.kind == messagePing:
			got = 'p'
		}
		if got != verdicts[i] {
			t.Errorf("case %d %q: %c, Node.js says %c", i, payload, got, verdicts[i])
		}
	}
	for _, v := range "rhpo." {
		if n := strings.Count(verdicts, string(v)); n < len(corpus)/100 {
			t.Errorf("only %d cases of %c: the corpus has lost its balance", n, v)
		}
	}
}

// corpusMaker writes payloads from a seed: objects with members that matter, in every disguise, and
// then, for half of them, damage. The generator is spelled out because its numbers must never change.
type corpusMaker struct {
	state uint64
	out   []byte
}

// helloCorpus returns n payloads, always the same.
func helloCorpus(n int) (corpus [][]byte) {
	m := corpusMaker{state: 1}
	for range n {
		m.out = nil
		m.payload()
		corpus = append(corpus, m.out)
	}
	return corpus
}

// below returns a number in [0,n), by SplitMix64.
func (m *corpusMaker) below(n int) int {
	m.state += 0x9e3779b97f4a7c15
	z := m.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

func (m *corpusMaker) pick(from ...string) string { return from[m.below(len(from))] }

func (m *corpusMaker) put(s string) { m.out = append(m.out, s...) }

func (m *corpusMaker) payload() {
	if m.below(8) == 0 {
		m.put("\xef\xbb\xbf")
	}
	m.space()
	m.put("{")
	for i := range 1 + m.below(5) {
		if i > 0 {
			m.put(",")
		}
		m.space()
		m.member()
		m.space()
	}
	m.put("}")
	m.space()
	if m.below(2) == 0 {
		return
	}
	for range 1 + m.below(2) {
		m.damage()
	}
}

func (m *corpusMaker) space() {
	if m.below(6) == 0 {
		m.put(m.pick(" ", "\n", "\t\r", "   "))
	}
	if m.below(300) == 0 {
		m.put(m.pick("\xc2\xa0", "\xef\xbb\xbf", "\v", "\f", "\x00", "\xe2\x80\xa8", "/**/"))
	}
}

func (m *corpusMaker) member() {
	switch m.below(4) {
	case 0:
		m.text("type")
		m.colon()
		m.text(m.pick("hello", "e2ee_hello", "hello", "ping", "e2ee_ready"))
	case 1:
		m.text("key")
		m.colon()
		m.text(m.key())
	case 2:
		m.text(m.pick("type", "key", "__proto__", "Type", "key ", "a", "", "constructor", "0"))
		m.colon()
		m.value(3)
	default:
		m.text(m.pick("a", "b", "toString", "ke", "typ", "types"))
		m.colon()
		m.value(3)
	}
}

func (m *corpusMaker) colon() {
	m.space()
	m.put(":")
	m.space()
}

func (m *corpusMaker) key() string {
	good := []string{goodKey, goodKey, goodKey, fieldPrimePlus(-2), "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}
	bad := []string{
		"", "bad", goodKey[:43], goodKey + "=", goodKey[:42] + "B=", " " + goodKey, strings.ToLower(goodKey),
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"4Ot6fDtBuK4WVuP68Z/EatoJjeucMrH9hmIFFl9JuAA=", "X5yVvKNQjCSx0LFVnIPvWwREXMRYHI6G2CJO3dCfEVc=",
		fieldPrimePlus(-1), fieldPrimePlus(0), fieldPrimePlus(1), fieldPrimePlus(9), "/////////////////////////////////////////38=",
		"//////////////////////////////////////////8=", goodKey[:20] + "\n" + goodKey[20:], goodKey[:20] + "-" + goodKey[21:],
	}
	if m.below(3) > 0 {
		return good[m.below(len(good))]
	}
	return bad[m.below(len(bad))]
}

// text writes s as a string, some characters escaped.
func (m *corpusMaker) text(s string) {
	escapes := m.below(3) == 0
	m.put(`"`)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			m.put(`\n`)
		case c == '/' && m.below(2) == 0:
			m.put(`\/`)
		case escapes && m.below(6) == 0:
			m.put(`\u00` + m.pick(hex.EncodeToString([]byte{c}), strings.ToUpper(hex.EncodeToString([]byte{c}))))
		default:
			m.put(string(rune(c)))
		}
	}
	if m.below(40) == 0 {
		m.put(m.pick("\xff", "\xe2\x82", "\xc3", "\xf0\x9f\x98", `\u0000`, " ", "é"))
	}
	m.put(`"`)
}

func (m *corpusMaker) value(depth int) {
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	switch m.below(kinds) {
	case 0:
		m.put(m.pick("0", "-0", "1", "-12", "0.5", "1e9", "1E+2", "-1.25e-7", "1e999", "true", "false", "null"))
		if m.below(40) == 0 {
			m.put(m.pick("0", ".", "e", "-", "x", "1", "e+", ".5"))
		}
	case 1:
		m.put(`"` + m.pick("", "x", "hello", `\"`, `\\`, `\u12aB`, `\ud800`, "\xff", "\xe2\x82", "\xc3\\\"", "\xf0\x9d\x84\x9e", "\xed\xa0\x80", "\xf4\x90", "\x7f") + `"`)
		if m.below(60) == 0 {
			m.put(m.pick(`"`, `\x`, "\x1f", `"\u00g0"`))
		}
	case 2:
		m.text(m.pick("hello", "type", "key", "plain text of some length to run through"))
	case 3:
		m.put("[")
		for i := range m.below(4) {
			if i > 0 {
				m.put(",")
			}
			m.space()
			m.value(depth - 1)
		}
		m.space()
		m.put("]")
	default:
		m.put("{")
		for i := range m.below(3) {
			if i > 0 {
				m.put(",")
			}
			m.space()
			m.text(m.pick("type", "key", "x"))
			m.colon()
			m.value(depth - 1)
		}
		m.put("}")
	}
}

// damage changes, drops, doubles or inserts a byte, or cuts the payload short.
func (m *corpusMaker) damage() {
	if len(m.out) == 0 {
		return
	}
	at := m.below(len(m.out))
	switch m.below(6) {
	case 0:
		m.out[at] = byte(m.below(256))
	case 1:
		m.out = append(m.out[:at], m.out[at+1:]...)
	case 2:
		m.out = m.out[:at]
	default:
		insert := m.pick(`"`, `\`, ",", ":", "{", "}", "[", "]", "0", "-", "e", " ", "\n", "\x00", "\xff", "\xc3", "\xe2\x82", "\xef\xbb\xbf", "u", "t")
		m.out = append(m.out[:at], append([]byte(insert), m.out[at:]...)...)
	}
}
