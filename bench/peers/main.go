// Peers is one WebSocket relay written four times, with four libraries that a
// Go programmer would reach for, as company for our own figures:
//
//	peers -lib gws|nbio|fasthttp|gorilla -port N [-congestion NAME]
//
// All speak the little protocol of the load generator: two sockets that ask for
// /ws?serverId=S&role=server and role=client are a pair, and a message of one is
// written to the other as the library does it, one write per message. They have
// no limits and no deadlines, and are set up the way their authors advise for
// throughput, so that a ratio against them is a fair one.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxMessageBytes is above the largest payload the generator sends; some of the
// libraries refuse such sizes by default.
const maxMessageBytes = 64 << 20

// relays are the libraries; each function serves ln until the process ends.
var relays = map[string]func(ln net.Listener) error{
	"gws":      serveGWS,
	"nbio":     serveNBIO,
	"fasthttp": serveFastHTTP,
	"gorilla":  serveGorilla,
}

func main() {
	lib := flag.String("lib", "", "library: "+strings.Join(libraries(), ", "))
	port := flag.Int("port", 0, "port on 127.0.0.1")
	congestion := flag.String("congestion", "", "TCP congestion control (empty: the kernel's)")
	flag.Parse()

	serve, ok := relays[*lib]
	if !ok {
		fmt.Fprintf(os.Stderr, "peers: -lib is %q, want one of %s\n", *lib, strings.Join(libraries(), ", "))
		os.Exit(2)
	}
	ln, err := listen(fmt.Sprintf("127.0.0.1:%d", *port), *congestion)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(serve(ln))
}

func libraries() []string {
	var names []string
	for name := range relays {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// listen opens a listener whose accepted sockets inherit the congestion control.
func listen(addr, congestion string) (net.Listener, error) {
	lc := net.ListenConfig{
		Control: func(_, _ string, c syscall.RawConn) error {
			if congestion == "" {
				return nil
			}
			var fault error
			err := c.Control(func(fd uintptr) {
				fault = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
			})
			if err != nil {
				return err
			}
			return fault
		},
	}
	return lc.Listen(context.Background(), "tcp4", addr)
}
