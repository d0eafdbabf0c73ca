package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"sluice/codec/ws"
)

// tlsClient is how the generator speaks TLS: with nothing kept from one
// connection to the next.
var tlsClient = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}

// pairPatience bounds every wait of a pair.
const pairPatience = 30 * time.Second

// A relayPair is the two sockets of a v1 session, plain or over TLS.
type relayPair struct {
	server, client net.Conn
	out, in        []byte
	cipher         []byte // what was read of records and not walked over
}

// dialPair opens both sockets; without cfg they are plain.
func dialPair(port int, cfg *tls.Config, id string) (*relayPair, error) {
	p := &relayPair{}
	for _, role := range []string{"server", "client"} {
		c, err := dialUpgraded(port, cfg, "/ws?serverId="+id+"&role="+role+"&v=1")
		if err != nil {
			p.close()
			return nil, err
		}
		if role == "server" {
			p.server = c
		} else {
			p.client = c
		}
	}
	return p, nil
}

func dialUpgraded(port int, cfg *tls.Config, target string) (net.Conn, error) {
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	if cfg != nil {
		c = tls.Client(c, cfg)
	}
	c.SetDeadline(time.Now().Add(pairPatience))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", target, relayedHost)
	// The relay says nothing behind its 101 that a small reader could swallow.
	res, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err == nil && res.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("GET %s: %s", target, res.Status)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (p *relayPair) close() {
	for _, c := range []net.Conn{p.server, p.client} {
		if c == nil {
			continue
		}
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn()
		}
		c.Close()
	}
}

// prepare makes a burst as it leaves and as it arrives: masked with the key 0,
// which leaves the payload as it is.
func (p *relayPair) prepare(payload, window int) {
	p.out, p.in = p.out[:0], make([]byte, window*(ws.HeaderLen(payload)+payload))
	body := bytes.Repeat([]byte{'m'}, payload)
	for range window {
		head := ws.AppendHeader(nil, true, ws.OpBinary, payload)
		head[1] |= 0x80
		p.out = append(append(append(p.out, head...), 0, 0, 0, 0), body...)
	}
}

// bursts sends a window of messages from the server's end and reads it at the
// client's, again and again until end, at least once. It returns the messages.
func (p *relayPair) bursts(payload, window int, end time.Time) (messages int, err error) {
	p.prepare(payload, window)
	for {
		deadline := time.Now().Add(pairPatience)
		p.server.SetDeadline(deadline)
		p.client.SetDeadline(deadline)
		if _, err := p.server.Write(p.out); err != nil {
			return messages, err
		}
		if _, err := io.ReadFull(p.client, p.in); err != nil {
			return messages, err
		}
		if p.in[len(p.in)-1] != 'm' {
			return messages, fmt.Errorf("a burst did not come through unchanged")
		}
		messages += window
		if !time.Now().Before(end) {
			return messages, nil
		}
	}
}

// flood is bursts whose receiver does not decrypt, so that the relay and not the
// generator is what is busy. The first burst is compared, the others counted.
func (p *relayPair) flood(payload, window int, end time.Time) (messages int, err error) {
	t, secure := p.client.(*tls.Conn)
	if !secure {
		return p.bursts(payload, window, end)
	}
	if messages, err = p.bursts(payload, window, time.Time{}); err != nil {
		return messages, err
	}
	c := t.NetConn()
	for time.Now().Before(end) {
		deadline := time.Now().Add(pairPatience)
		p.server.SetDeadline(deadline)
		c.SetDeadline(deadline)
		if _, err := p.server.Write(p.out); err != nil {
			return messages, err
		}
		if err := p.skip(c, len(p.in)); err != nil {
			return messages, err
		}
		messages += window
	}
	return messages, nil
}

// recordOverhead is what a TLS 1.3 record carries besides plaintext behind its
// header: the content type and the tag.
const recordOverhead = 1 + 16

// skip reads whole records until they have carried n bytes.
func (p *relayPair) skip(c net.Conn, n int) error {
	if p.cipher == nil {
		p.cipher = make([]byte, 0, 256<<10)
	}
	for n > 0 {
		b := p.cipher
		k, err := c.Read(b[len(b):cap(b)])
		if err != nil {
			return err
		}
		for b = b[:len(b)+k]; len(b) >= 5; {
			record := 5 + int(b[3])<<8 + int(b[4])
			if len(b) < record {
				break
			}
			n -= record - 5 - recordOverhead
			b = b[record:]
		}
		p.cipher = p.cipher[:copy(p.cipher[:cap(p.cipher)], b)]
	}
	if n < 0 {
		return fmt.Errorf("%d bytes too many came", -n)
	}
	return nil
}

// roundTrips times messages there and back, one at a time, until end.
func (p *relayPair) roundTrips(payload int, end time.Time) (trips []time.Duration, err error) {
	back := &relayPair{server: p.client, client: p.server}
	for time.Now().Before(end) {
		start := time.Now()
		if _, err := p.bursts(payload, 1, time.Time{}); err != nil {
			return nil, err
		}
		if _, err := back.bursts(payload, 1, time.Time{}); err != nil {
			return nil, err
		}
		trips = append(trips, time.Since(start))
	}
	return trips, nil
}

// residentKiB is the resident memory of a process.
func residentKiB(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("unexpected /proc/%d/statm", pid)
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()) / 1024, err
}
