package gateway_test

import (
	"bufio"
	"net"
	"net/http"
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
