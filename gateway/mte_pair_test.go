package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	wire "sluice/codec/frame"
	"sluice/codec/open"
	"sluice/kyber"
)

// An mteClient is a client of the encrypting relay made of the codecs alone: it
// sends whatever a test wants, also what no client should.
type mteClient struct {
	n       *mteNode
	host    string
	token   wire.Token
	about   wire.Discovery
	profile open.Profile
}

// newMTEClient authenticates at a domain.
func newMTEClient(t testing.TB, n *mteNode, host string) *mteClient {
	t.Helper()
	a := httpDo(t, n.addr, "GET", wire.AuthPath+"?frameVersions=2", "Host:"+host)
	c := &mteClient{n: n, host: host}
	var err error
	if c.token, c.about, err = wire.ParseAuth([]byte(a.body)); err != nil {
		t.Fatalf("auth at %s: %d %v %q", host, a.status, err, a.body)
	}
	if c.profile, err = open.New(c.about.KyberStrength, c.about.SequenceWindow); err != nil {
		t.Fatal(err)
	}
	return c
}

// An mtePair is the client's end of a pair.
type mtePair struct {
	c    *mteClient
	id   wire.PairID
	enc  open.Encoder
	dec  open.Decoder
	next uint64 // number of the relay's next operation
}

// offer makes keys and personalization for one pair.
func (c *mteClient) offer() (o wire.PairOffer, encoder, decoder *kyber.DecapsulationKey) {
	strength := kyber.Strength(c.about.KyberStrength)
	var e kyber.Engine
	o = wire.PairOffer{
		ID:            wire.NewPairID(),
		EncoderKey:    make([]byte, strength.EncapsulationKeyBytes()),
		DecoderKey:    make([]byte, strength.EncapsulationKeyBytes()),
		EncoderPerson: []byte(wire.PersonPrefix(wire.HTTP) + wire.NewPairID().String() + "0123456789abcdef"),
		DecoderPerson: []byte(wire.PersonPrefix(wire.HTTP) + wire.NewPairID().String() + "fedcba9876543210"),
		Profile:       []byte(c.profile.String()),
		FrameVersion:  wire.Version,
	}
	return o, e.GenerateKey(strength, o.EncoderKey), e.GenerateKey(strength, o.DecoderKey)
}

// postControl posts a JSON body to a control endpoint.
func (c *mteClient) postControl(path string, body []byte) (status int, header http.Header, answer []byte, err error) {
	r, _ := http.NewRequest("POST", "http://"+c.n.addr+path, bytes.NewReader(body))
	r.Host = c.host
	tr := &http.Transport{DisableKeepAlives: true, DialContext: dialsTo(c.n.addr)}
	res, err := (&http.Client{Transport: tr, Timeout: patience}).Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, res.Header, answer, err
}

// pair makes a pair.
func (c *mteClient) pair() (*mtePair, error) {
	o, forEncoder, forDecoder := c.offer()
	status, header, body, err := c.postControl(wire.PairPath, wire.AppendPairRequest(nil, &c.token, c.about.KyberStrength, []wire.PairOffer{o}))
	if err != nil {
		return nil, err
	}
	answers, err := wire.ParsePairAnswers(body)
	if err != nil || len(answers) != 1 {
		return nil, fmt.Errorf("pairing: %d %s %v", status, header.Get(wire.ErrorHeader), err)
	}
	a := &answers[0]
	p := &mtePair{c: c, id: o.ID, enc: c.profile.NewEncoder(open.MKE), dec: c.profile.NewDecoder(open.MKE)}
	up, err := c.state(forEncoder, a.DecoderSecret, a.DecoderNonce, o.EncoderPerson)
	if err != nil {
		return nil, err
	}
	down, err := c.state(forDecoder, a.EncoderSecret, a.EncoderNonce, o.DecoderPerson)
	if err != nil {
		return nil, err
	}
	return p, errors.Join(p.enc.Restore(up), p.dec.Restore(down))
}

// state is the initial state of one direction.
func (c *mteClient) state(dk *kyber.DecapsulationKey, secret []byte, nonce uint64, person []byte) ([]byte, error) {
	var shared [kyber.SharedKeyBytes]byte
	if err := dk.Decapsulate(shared[:], secret); err != nil {
		return nil, err
	}
	return c.profile.AppendInitialState(nil, &shared, nonce, person), nil
}

// use keys the pair for a type.
func (p *mtePair) use(t open.Type) {
	if p.enc.Type() == t {
		return
	}
	enc, dec := p.c.profile.NewEncoder(t), p.c.profile.NewDecoder(t)
	if err := errors.Join(enc.Restore(p.enc.AppendState(nil)), dec.Restore(p.dec.AppendState(nil))); err != nil {
		panic(err)
	}
	p.enc, p.dec = enc, dec
}

// appendEncoded appends what the encoder makes of a plaintext, which uses a number.
func (p *mtePair) appendEncoded(dst, plain []byte) []byte {
	dst, err := p.enc.AppendEncode(dst, plain)
	if err != nil {
		panic(err)
	}
	return dst
}

// request makes a REQUEST frame; body says that DATA follow.
func (p *mtePair) request(method, path string, body bool) []byte {
	var w wire.MetadataWriter
	plain, err := w.AppendRequest(nil, []byte(method), []byte(path))
	if err != nil { // tests want wrong paths, too
		plain = fmt.Appendf(nil, `{"method":%q,"path":%q,"v":2}`, method, path)
	}
	meta := p.appendEncoded(nil, plain)
	flags := wire.FlagEnd
	if body {
		flags = 0
	}
	b := wire.AppendEnvelope(nil, wire.KindRequest, flags, wire.RequestHeadBytes+len(meta))
	b = wire.AppendRequestHead(b, byte(p.enc.Type()), wire.MethodByte(method), p.id, p.c.token[:], len(meta))
	return append(b, meta...)
}

// appendData appends a DATA frame.
func (p *mtePair) appendData(dst, app []byte, flags wire.Flags) []byte {
	dst = wire.AppendEnvelope(dst, wire.KindData, flags, p.c.profile.EncodedBytes(p.enc.Type(), len(app)+1))
	return p.appendEncoded(dst, wire.AppendData(nil, flags, app))
}

// maxData is the largest application payload of a DATA.
func (p *mtePair) maxData() int {
	return p.c.profile.PlaintextBytes(p.enc.Type(), p.c.about.MaxFrameBytes) - 1
}

// get sends a request without a body through the pair, on a connection of its
// own, and returns what is answered. A pair that the relay still has in use, since
// it has not seen yet what became of the request before, is asked for again with
// the same bytes.
func (p *mtePair) get(path string) (body string, err error) {
	b := p.request("GET", path, false)
	for until := time.Now().Add(patience); ; {
		body, err = p.send(b)
		if !refusedFor(err, wire.PairBusy) || time.Now().After(until) {
			return body, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// send sends frames with their length on a connection of their own.
func (p *mtePair) send(frames []byte) (body string, err error) {
	c, err := p.c.n.dial()
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(append(p.c.frameHead(len(frames)), frames...)); err != nil {
		return "", err
	}
	a, err := c.answer(p)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	_, err = io.Copy(&text, a)
	if err == nil && a.status != 200 {
		err = fmt.Errorf("status %d", a.status)
	}
	return text.String(), err
}
