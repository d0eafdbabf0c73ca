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
