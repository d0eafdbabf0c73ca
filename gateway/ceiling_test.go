package gateway_test

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Connections with half a request do not keep others out at the ceiling: the one
// that has waited longest goes.
func TestHTTPCeiling(t *testing.T) {
	t.Parallel()
	if overTLS {
		t.Skip("it speaks plain HTTP")
	}
	n := startNode(t, "LOOPS=1", "HTTP_MAX_CONNECTIONS=4")
	for _, half := range []string{"GET /hea", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx"} {
		var old []net.Conn
		for range 4 {
			c, err := net.Dial("tcp", n.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write([]byte(half))
			old = append(old, c)
		}
		// They are accepted in the order in which they connected, so before the newcomers.
		for range 3 {
			c, err := net.Dial("tcp", n.addr)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			c.Write([]byte("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || r.StatusCode != 200 {
				t.Fatalf("a newcomer at the ceiling: %v, %v", r, err)
			}
			c.Close()
		}
		for _, c := range old {
			c.Close()
		}
	}
}

// What the HTTP layer refuses or gives up is counted where an operator looks.
func TestHTTPLimitsAreCounted(t *testing.T) {
	t.Parallel()
	if overTLS {
		t.Skip("it speaks plain HTTP")
	}
	n := startNode(t, "HTTP_MAX_HEADERS=5", "PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS=300")
	for _, c := range []struct {
		raw  string
		want int
	}{
		{"rubbish\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 9) + "\r\n", 431},
		{"GET / HTTP/3.0\r\n\r\n", 505},
		{"GET / HTTP/1.1\r\nHo", 408},
		{"", 0},
	} {
		if got := rawAnswer(t, n.addr, c.raw); got != c.want {
			t.Errorf("%.20q: %d, want %d", c.raw, got, c.want)
		}
	}
	for status, want := range map[string]string{"400": "1", "431": "1", "505": "1", "408": "1", "414": "0"} {
		n.untilTLS(`http_refusals_total{listener="relay",status="`+status+`"}`, want)
		n.untilTLS(`http_refusals_total{listener="mte",status="`+status+`"}`, "0")
	}
	n.untilTLS(`http_idle_timeouts_total{listener="relay"}`, "1")
	n.untilTLS(`http_write_stalls_total{listener="relay"}`, "0")
	n.untilTLS(`http_connections_refused_total{listener="relay"}`, "0")
}
