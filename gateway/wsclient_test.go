package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Opcodes of RFC 6455 §5.2.
const (
	opCont  = 0
	opText  = 1
	opBin   = 2
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// maxPayload is the largest payload of a message. Contract, relay §3.
const maxPayload = 32<<20 - 14

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// A wsClient is a WebSocket peer that hides nothing: bytes go out as the test
// wrote them, and whatever the relay sends against RFC 6455 is an error. It
// owns one socket and no goroutine: one that is not asked for a message does
// not read, so that the relay meets a stalled peer. One goroutine may send while
// another receives.
type wsClient struct {
	t    testing.TB
	name string
	nc   wsConn
	br   *bufio.Reader
	pong [][]byte // payloads of the pongs that msg passed over
	ping int      // pings of the relay's that msg answered
}

// A wsConn is what a wsClient runs on: TCP, or TLS over it.
type wsConn interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
	SetNoDelay(on bool) error
	File() (*os.File, error)
}

// wsOption changes how a wsClient connects.
type wsOption func(*wsDial)

type wsDial struct {
	rcvBuf, sndBuf int
	early          []byte
	raw            string // replaces the query
}

// smallBuffers gives the client's socket small kernel buffers, so that
// pressure is felt after little.
func smallBuffers(d *wsDial) { d.rcvBuf, d.sndBuf = 16<<10, 16<<10 }

// early is sent in the same segment as the upgrade.
func early(b []byte) wsOption { return func(d *wsDial) { d.early = b } }

// dialTCP opens a plain connection.
func dialTCP(addr string, d wsDial) (*net.TCPConn, error) {
	nd := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			if d.rcvBuf > 0 {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, d.rcvBuf)
			}
			if d.sndBuf > 0 {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, d.sndBuf)
			}
		})
	}}
	c, err := nd.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// upgradeRequest is a complete upgrade; hs replaces headers by name, an empty
// value leaves one out.
func upgradeRequest(target, key string, hs ...string) []byte {
	all := []string{"Host: relay", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key}
	for _, h := range hs {
		name, value, _ := strings.Cut(h, ":")
		all = slices.DeleteFunc(all, func(x string) bool { return strings.HasPrefix(strings.ToLower(x), strings.ToLower(name)+":") })
		if value != "" {
			all = append(all, h)
		}
	}
	return []byte("GET " + target + " HTTP/1.1\r\n" + strings.Join(all, "\r\n") + "\r\n\r\n")
}

func newKey() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.StdEncoding.EncodeToString(b[:])
}

// refusedError is an upgrade that was not answered 101.
type refusedError struct {
	status int
	body   string
	header http.Header
}

func (e *refusedError) Error() string { return fmt.Sprintf("refused: %d %q", e.status, e.body) }

// dialWS connects and upgrades.
func dialWS(t testing.TB, addr, query, name string, opts ...wsOption) (*wsClient, error) {
	d := wsDial{raw: query}
	for _, o := range opts {
		o(&d)
	}
	nc, err := dialAny(addr, d)
	if err != nil {
		return nil, err
	}
	c := &wsClient{t: t, name: name, nc: nc, br: bufio.NewReaderSize(nc, 4096)}
	nc.SetDeadline(time.Now().Add(patience))
	if _, err := nc.Write(append(upgradeRequest("/ws?"+d.raw, newKey()), d.early...)); err != nil {
		nc.Close()
		return nil, err
	}
	r, err := http.ReadResponse(c.br, nil)
	if err != nil {
		nc.Close()
		return nil, err
	}
	if r.StatusCode != 101 {
		body, _ := io.ReadAll(r.Body)
		nc.Close()
		return nil, &refusedError{r.StatusCode, string(body), r.Header}
	}
	nc.SetDeadline(time.Time{})
	return c, nil
}

// wsQuery writes the query of an upgrade; cid "-" leaves the connectionId out.
func wsQuery(serverID, role string, v int, cid string) string {
	q := url.Values{"serverId": {serverID}, "role": {role}, "v": {fmt.Sprint(v)}}
	if cid != "-" {
		q.Set("connectionId", cid)
	}
	return q.Encode()
}

// frameHead is a client's frame header with the mask key 0x11223344, or, with
// plain set, the key 0, which leaves the payload as it is.
func frameHead(op int, fin bool, length uint64, plain bool) []byte {
	b := []byte{byte(op)}
	if fin {
		b[0] |= 0x80
	}
	switch {
	case length < 126:
		b = append(b, 0x80|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), length)
	}
	if plain {
		return append(b, 0, 0, 0, 0)
	}
	return append(b, 0x11, 0x22, 0x33, 0x44)
}

// frame is a whole masked frame.
func frame(op int, fin bool, payload []byte) []byte {
	b := frameHead(op, fin, uint64(len(payload)), false)
	n := len(b)
	b = append(b, payload...)
	subtle.XORBytes(b[n:], b[n:], bytes.Repeat([]byte{0x11, 0x22, 0x33, 0x44}, len(payload)/4+1))
	return b
}

func closeFrame(code uint16, reason string) []byte {
	return frame(opClose, true, append(binary.BigEndian.AppendUint16(nil, code), reason...))
}

// write sends b whole within patience.
func (c *wsClient) write(b []byte) error {
	c.nc.SetWriteDeadline(time.Now().Add(patience))
	_, err := c.nc.Write(b)
	return err
}

func (c *wsClient) fatal(format string, a ...any) {
	c.t.Helper()
	c.t.Fatalf("%s: %s", c.name, fmt.Sprintf(format, a...))
}

// raw sends bytes as they are.
func (c *wsClient) raw(b ...[]byte) {
	c.t.Helper()
	if err := c.write(bytes.Join(b, nil)); err != nil {
		c.fatal("sending: %v", err)
	}
}

func (c *wsClient) text(s string)   { c.t.Helper(); c.raw(frame(opText, true, []byte(s))) }
func (c *wsClient) bin(b []byte)    { c.t.Helper(); c.raw(frame(opBin, true, b)) }
func (c *wsClient) pinged(s string) { c.t.Helper(); c.raw(frame(opPing, true, []byte(s))) }

// fin half-closes, rst resets, bye closes the descriptor.
func (c *wsClient) fin() { c.nc.CloseWrite() }
func (c *wsClient) rst() { c.nc.SetLinger(0); c.nc.Close() }
func (c *wsClient) bye() { c.nc.Close() }

// A wsMessage is a message, a pong or a close frame from the relay.
type wsMessage struct {
	op     int
	data   []byte
	code   uint16 // opClose; 0 for none
	reason string
}

func (m wsMessage) String() string {
	if m.op == opClose {
		return fmt.Sprintf("close %d %q", m.code, m.reason)
	}
	if len(m.data) > 40 {
		return fmt.Sprintf("op %d %q… (%d bytes)", m.op, m.data[:40], len(m.data))
	}
	return fmt.Sprintf("op %d %q", m.op, m.data)
}

// errReset is a connection that ended by RST, io.EOF one that ended by FIN.
var errReset = errors.New("connection reset")

func ended(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return errReset
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.EOF
	case err != nil && strings.Contains(err.Error(), "tls: "):
		return fmt.Errorf("TLS failed: %w", err)
	}
	return err
}

// next returns the relay's next frame. The relay sends messages whole, always:
// a fragment is an error, as is everything that RFC 6455 forbids a server.
func (c *wsClient) next(within time.Duration) (m wsMessage, err error) {
	c.nc.SetReadDeadline(time.Now().Add(within))
	var h [10]byte
	if _, err := io.ReadFull(c.br, h[:2]); err != nil {
		return m, ended(err)
	}
	n := int(h[1] & 0x7f)
	m.op = int(h[0] & 15)
	switch {
	case h[0]&0x70 != 0:
		return m, errors.New("reserved bits from the relay")
	case h[0]&0x80 == 0:
		return m, errors.New("a fragment from the relay")
	case h[1]&0x80 != 0:
		return m, errors.New("a masked frame from the relay")
	case m.op >= 8 && n > 125:
		return m, errors.New("a control frame that is too long")
	case n == 126:
		if _, err := io.ReadFull(c.br, h[2:4]); err != nil {
			return m, ended(err)
		}
		if n = int(binary.BigEndian.Uint16(h[2:])); n < 126 {
			return m, errors.New("a length that is not minimal")
		}
	case n == 127:
		if _, err := io.ReadFull(c.br, h[2:10]); err != nil {
			return m, ended(err)
		}
		if n = int(binary.BigEndian.Uint64(h[2:])); n < 1<<16 || n > maxPayload {
			return m, fmt.Errorf("a length of %d bytes", n)
		}
	}
	m.data = make([]byte, n)
	if _, err := io.ReadFull(c.br, m.data); err != nil {
		return m, ended(err)
	}
	switch m.op {
	case opText, opBin, opPing, opPong:
	case opClose:
		if n == 1 {
			return m, errors.New("a close payload of one byte")
		}
		if n >= 2 {
			m.code, m.reason = binary.BigEndian.Uint16(m.data), string(m.data[2:])
			if m.code < 1000 || m.code == 1005 || m.code == 1006 || m.code == 1015 || !utf8.ValidString(m.reason) {
				return m, fmt.Errorf("an illegal close frame: %v", m)
			}
		}
	default:
		return m, fmt.Errorf("opcode %d from the relay", m.op)
	}
	return m, nil
}

// message returns the next data message or close frame. Pings are answered,
// pongs noted.
func (c *wsClient) message(within time.Duration) (wsMessage, error) {
	for until := time.Now().Add(within); ; {
		m, err := c.next(max(0, time.Until(until)))
		switch {
		case err != nil:
			return m, err
		case m.op == opPing:
			c.ping++
			if err := c.write(frame(opPong, true, m.data)); err != nil {
				return m, ended(err)
			}
		case m.op == opPong:
			c.pong = append(c.pong, m.data)
		default:
			return m, nil
		}
	}
}

// want expects one message.
func (c *wsClient) want(op int, data []byte) {
	c.t.Helper()
	m, err := c.message(patience)
	if err != nil {
		c.fatal("expected op %d of %d bytes: %v", op, len(data), err)
	}
	if m.op != op || !bytes.Equal(m.data, data) {
		c.fatal("expected %v, got %v", wsMessage{op: op, data: data}, m)
	}
}

func (c *wsClient) wantText(s string) { c.t.Helper(); c.want(opText, []byte(s)) }

// wantJSON expects a text message that holds this value, whatever its spacing
// and the order of its members and, in connectionIds, of its elements.
func (c *wsClient) wantJSON(s string) {
	c.t.Helper()
	m, err := c.message(patience)
	if err != nil {
		c.fatal("expected %s: %v", s, err)
	}
	if m.op != opText || !sameJSON(m.data, []byte(s)) {
		c.fatal("expected %s, got %v", s, m)
	}
}

func sameJSON(a, b []byte) bool {
	canonical := func(b []byte) string {
		var v map[string]any
		if err := json.Unmarshal(b, &v); err != nil || !utf8.Valid(b) {
			return string(b)
		}
		if ids, ok := v["connectionIds"].([]any); ok {
			slices.SortFunc(ids, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return canonical(a) == canonical(b)
}

// wantClose expects this close frame, answers it and expects the end of the
// connection in order.
func (c *wsClient) wantClose(code uint16, reason string) {
	c.t.Helper()
	c.wantCloseFrame(code, reason)
	c.write(closeFrame(code, ""))
	c.wantEOF()
}

func (c *wsClient) wantCloseFrame(code uint16, reason string) {
	c.t.Helper()
	m, err := c.message(patience)
	if err != nil {
		c.fatal("expected close %d %q: %v", code, reason, err)
	}
	if m.op != opClose || m.code != code || m.reason != reason {
		c.fatal("expected close %d %q, got %v", code, reason, m)
	}
}

// wantEOF expects FIN and nothing in front of it.
func (c *wsClient) wantEOF() {
	c.t.Helper()
	if m, err := c.message(patience); err != io.EOF {
		c.fatal("expected the end of the stream, got %v %v", m, err)
	}
	c.nc.Close()
}

// leave closes with a code and expects it echoed, and then the end.
func (c *wsClient) leave(code uint16) {
	c.t.Helper()
	c.raw(closeFrame(code, "bye"))
	c.wantCloseFrame(code, "")
	c.wantEOF()
}

// barrier sends a ping and expects its pong, and no message in front of it:
// everything that was sent to this client before has been asked for.
func (c *wsClient) barrier() {
	c.t.Helper()
	var tag [8]byte
	rand.Read(tag[:])
	c.pong = nil
	c.raw(frame(opPing, true, tag[:]))
	for until := time.Now().Add(patience); ; {
		m, err := c.next(time.Until(until))
		switch {
		case err != nil:
			c.fatal("waiting for a pong: %v", err)
		case m.op == opPong && bytes.Equal(m.data, tag[:]):
			return
		case m.op == opPong:
			c.pong = append(c.pong, m.data)
		case m.op == opPing:
			c.ping++
			c.raw(frame(opPong, true, m.data))
		default:
			c.fatal("unexpected %v", m)
		}
	}
}
